# SPDX-License-Identifier: MIT
"""What a code object says of itself: its size, and in a note of AMD's, in MessagePack, its kernels' arguments."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

__all__ = ["argument_sizes", "declared_bytes"]

_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_BUNDLE = b"CCOB"
_COMPRESSED_SIZES = {2: "<I", 3: "<Q"}  # how its header has the size of the file, by its version
_ELF = b"\x7fELF\x02\x01"
_NOTES = 4  # PT_NOTE
_METADATA = 32  # NT_AMDGPU_METADATA, of the vendor "AMDGPU"
_DEEPEST = 32
# Of MessagePack's numbers: how struct reads them, by their first byte.
_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
# Of the forms with a length of their own: what they hold, and how the length is read.
_LENGTHS = {
    0xC4: ("bytes", ">B"),
    0xC5: ("bytes", ">H"),
    0xC6: ("bytes", ">I"),
    0xD9: ("text", ">B"),
    0xDA: ("text", ">H"),
    0xDB: ("text", ">I"),
    0xDC: ("list", ">H"),
    0xDD: ("list", ">I"),
    0xDE: ("map", ">H"),
    0xDF: ("map", ">I"),
}


def argument_sizes(code: bytes) -> dict[str, tuple[int, ...]]:
    """Return the bytes of each argument of a launch, by kernel; without kernels of which the code does not tell.

    Parameters
    ----------
    code
        A code object, or a bundle: kernels that differ between its targets are left out.
    """
    sizes: dict[str, tuple[int, ...]] = {}
    differing: set[str] = set()
    for image in _images(code):
        for description in _descriptions(image):
            for kernel, arguments in _kernels(description):
                if sizes.setdefault(kernel, arguments) != arguments:
                    differing.add(kernel)
    return {kernel: arguments for kernel, arguments in sizes.items() if kernel not in differing}


def declared_bytes(code: bytes) -> int:
    """Return how many bytes a code object or a bundle has by its headers: more than there are, if it is cut off."""
    try:
        if code.startswith(_COMPRESSED_BUNDLE):
            (version,) = struct.unpack_from("<H", code, 4)
            return max(struct.unpack_from(_COMPRESSED_SIZES.get(version, ""), code, 8), default=0)
        if code.startswith(_BUNDLE):
            return max((offset + size for offset, size in _entries(code) if size), default=0)
        return max(_ends(code)) if code.startswith(_ELF) else 0
    except (struct.error, OverflowError):
        return len(code) + 1  # the headers themselves are cut off


def _ends(image: bytes) -> Iterator[int]:
    """Give where the tables of headers of an ELF file end, and what its segments have in the file."""
    segments, sections = struct.unpack_from("<QQ", image, 0x20)
    segment_bytes, segment_count, section_bytes, section_count = struct.unpack_from("<4H", image, 0x36)
    yield sections + section_bytes * section_count
    yield segments + segment_bytes * segment_count
    for number in range(segment_count):
        offset, _, _, size = struct.unpack_from("<4Q", image, segments + number * segment_bytes + 8)
        yield offset + size


def _entries(bundle: bytes) -> Iterator[tuple[int, int]]:
    """Give where each target's code is in a bundle, and its size; struct.error where the table is cut off."""
    at = len(_BUNDLE)
    (count,) = struct.unpack_from("<Q", bundle, at)
    at += 8
    for _ in range(count):
        offset, size, name = struct.unpack_from("<3Q", bundle, at)
        at += 24 + name
        yield offset, size


def _images(code: bytes) -> Iterator[bytes]:
    if not code.startswith(_BUNDLE):
        yield code
        return
    try:
        for offset, size in _entries(code):
            yield code[offset : offset + size]
    except (struct.error, OverflowError):
        return


def _descriptions(image: bytes) -> Iterator[Any]:
    """Give what AMD's notes of an ELF file hold."""
    if not image.startswith(_ELF):
        return
    try:
        (headers,) = struct.unpack_from("<Q", image, 0x20)
        each, count = struct.unpack_from("<HH", image, 0x36)
        for number in range(count):
            kind, _, at, _, _, size = struct.unpack_from("<IIQQQQ", image, headers + number * each)
            end = min(at + size, len(image)) if kind == _NOTES else at
            while at + 12 <= end:
                name, length, note = struct.unpack_from("<III", image, at)
                start = at + 12 + (name + 3 & ~3)
                if note == _METADATA and image[at + 12 : at + 12 + name].rstrip(b"\0") == b"AMDGPU":
                    yield _Reader(image[start : start + length]).read()
                at = start + (length + 3 & ~3)
    except (struct.error, ValueError, OverflowError):  # not a file that anything loads
        return


def _kernels(description: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    kernels = description.get("amdhsa.kernels") if isinstance(description, dict) else None
    for kernel in kernels if isinstance(kernels, list) else ():
        arguments = kernel.get(".args", []) if isinstance(kernel, dict) else None
        if not isinstance(arguments, list) or not all(isinstance(one, dict) for one in arguments):
            continue
        if ".args" not in kernel and kernel.get(".kernarg_segment_size"):
            continue  # it has some, and does not say which
        # The runtime fills hidden ones in.
        seen = [one.get(".size") for one in arguments if not str(one.get(".value_kind")).startswith("hidden_")]
        if all(isinstance(size, int) for size in seen):
            yield str(kernel.get(".symbol")).removesuffix(".kd"), tuple(seen)


class _Reader:
    """Reads one value of MessagePack; ValueError or struct.error where the bytes are none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        tag = self._take(">B")
        if tag < 0x80 or tag >= 0xE0:
            return tag if tag < 0x80 else tag - 0x100
        if tag < 0xC0:
            kind, length = ("map", tag & 15) if tag < 0x90 else ("list", tag & 15) if tag < 0xA0 else ("text", tag & 31)
            return self._items(kind, length, depth)
        if tag in _NUMBERS:
            return self._take(_NUMBERS[tag])
        if tag in _LENGTHS:
            kind, form = _LENGTHS[tag]
            return self._items(kind, self._take(form), depth)
        if tag in (0xC0, 0xC2, 0xC3):
            return None if tag == 0xC0 else tag == 0xC3
        raise ValueError("a form that no metadata has")

    def _take(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def _items(self, kind: str, length: int, depth: int) -> Any:
        if length > len(self._data) - self._at:
            raise ValueError("longer than the note")
        if kind == "list":
            return [self.read(depth + 1) for _ in range(length)]
        if kind == "map":
            return {str(self.read(depth + 1)): self.read(depth + 1) for _ in range(length)}
        self._at += length
        data = self._data[self._at - length : self._at]
        return data.decode("utf-8", "replace") if kind == "text" else data
