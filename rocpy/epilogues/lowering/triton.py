# SPDX-License-Identifier: MIT
"""The fused lowering on AMD: a product with an expression inlined, compiled by Triton to a code object with no GPU.

Triton is needed to compile; what was compiled once is kept on disk and read without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import linecache
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocpy._messages.distribution import install_command
from rocpy.epilogues._custom import CustomEpilogue
from rocpy.epilogues.expressions.resolve import Resolved, resolve
from rocpy.epilogues.expressions.types import ARRAY, NUMBER, ZERO_DIM, name_of
from rocpy.epilogues.lowering.triton_source import INPUT_KINDS, KernelText, kernel_text
from rocpy.errors import InvalidProblemError, UnsupportedError
from rocpy.runtime import _disk_cache

__all__ = ["ARCHITECTURES", "FusedKernel", "Tile", "compile_kernel", "tiles"]

#: Architectures that kernels are made for, and how many lanes a wave of each has.
ARCHITECTURES = {
    "gfx90a": 64,
    "gfx942": 64,
    "gfx950": 64,
    "gfx1100": 32,
    "gfx1101": 32,
    "gfx1200": 32,
    "gfx1201": 32,
}
_SCRATCH = re.compile(r"\.private_segment_fixed_size: (\d+)")
# Counts changes of the text or of the record that make kept kernels useless.
_FORMAT = 3


@dataclass(frozen=True, slots=True)
class Tile:
    """How a kernel divides the product: one candidate of the autotuner.

    Parameters
    ----------
    m, n, k
        Extents of the tile that a block computes, and of the slice of K that it reads at a time.
    warps
        Waves of a block.
    stages
        Slices of K that are in flight at a time.
    group
        Rows of tiles that are processed together.
    """

    m: int
    n: int
    k: int
    warps: int = 4
    stages: int = 2
    group: int = 8

    @property
    def name(self) -> str:
        """Its part of an algorithm's name."""
        return f"{self.m}x{self.n}x{self.k}_w{self.warps}_s{self.stages}_g{self.group}"


def tiles(m: int, n: int, arch: str, operand: str) -> tuple[Tile, ...]:
    """Return the candidates for a product on an architecture, those that waste little of their work first."""
    # Slices of K of 32 elements of 16 bits keep within the registers of a wave of 32 lanes; one of 64 has room for two.
    deep = (32 if operand == "float32" else 64) if ARCHITECTURES[arch] == 64 else 32
    every = [Tile(128, 128, deep, 8), Tile(64, 128, 32), Tile(128, 64, 32), Tile(64, 64, 32), Tile(32, 64, 32)]
    if deep == 64:
        every += [Tile(128, 128, 32, 8), Tile(64, 64, 64)]
    every += [Tile(32, 32, 32, 2), Tile(16, 64, 32, 2)]

    def rank(tile: Tile) -> tuple[bool, float]:
        waste = -(-m // tile.m) * tile.m * -(-n // tile.n) * tile.n / max(1, m * n)
        return waste > 1.25, waste if waste > 1.25 else -tile.m * tile.n

    return tuple(sorted(every, key=rank))


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A code object with one kernel, and how to launch it.

    Parameters
    ----------
    code
        The code object.
    isa
        Its instructions, as text.
    name
        The kernel's name in it.
    arch
        Architecture.
    tile
        Tile sizes.
    threads
        Threads of a block.
    shared_bytes
        Dynamic shared memory of a block.
    scratch_bytes
        Memory for spilled registers; a candidate with any is not worth measuring.
    arguments
        Name and type of each argument, in order; Triton appends two null pointers.
    """

    code: bytes
    isa: str
    name: str
    arch: str
    tile: Tile
    threads: int
    shared_bytes: int
    scratch_bytes: int
    arguments: tuple[tuple[str, str], ...]

    def grid(self, m: int, n: int, batch: int = 1) -> tuple[int, int, int]:
        """Return the blocks of a launch for a product's extents."""
        return -(-m // self.tile.m) * -(-n // self.tile.n), batch, 1


def _described(epilogue: CustomEpilogue, inputs: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return kind and type of each input that is read."""
    described = {}
    for name in epilogue.expression.used_inputs:
        argument = inputs.get(name)
        if not isinstance(argument, tuple) or len(argument) != 2 or argument[0] not in INPUT_KINDS:
            raise InvalidProblemError(
                f"inputs: got {argument!r} for {name!r}, expected a pair of what it broadcasts along, of "
                f"{', '.join(INPUT_KINDS)}, and its type"
            )
        described[name] = (argument[0], "float32" if argument[0] == "number" else name_of(argument[1], name))
    return described


def _resolved(epilogue: CustomEpilogue, operand: str, inputs: Mapping[str, tuple[str, str]]) -> Resolved:
    ranks = {"number": NUMBER, "scalar": ZERO_DIM}
    operand = "bfloat16" if operand.startswith("float8") else operand  # what a product of such counts as
    named = {name: (dtype, ranks.get(kind, ARRAY)) for name, (kind, dtype) in inputs.items()}
    return resolve(epilogue.expression, operand, named)


def result_types(epilogue: CustomEpilogue, operand: str, inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types of an epilogue's results for operands and inputs of given types."""
    return _resolved(epilogue, operand, _described(epilogue, inputs)).out_types


@functools.lru_cache(maxsize=256)
def _text(
    epilogue: CustomEpilogue, operand: str, layout: str, inputs: tuple[tuple[str, tuple[str, str]], ...]
) -> KernelText:
    kinds = {name: kind for name, (kind, _) in inputs}
    return kernel_text(_resolved(epilogue, operand, dict(inputs)), operand, layout, kinds)


def text_of(epilogue: CustomEpilogue, operand: str, layout: str, inputs: Mapping[str, Any]) -> KernelText:
    """Return the kernel's text for operands and inputs of given types."""
    return _text(epilogue, operand, layout, tuple(_described(epilogue, inputs).items()))


@functools.lru_cache(maxsize=256)
def python_function(kernel: KernelText) -> Any:
    """Return a kernel as a Python function whose source Triton can read."""
    import triton.language as tl

    file = f"<rocpy {hashlib.sha256(kernel.text.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(kernel.text), None, kernel.text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"tl": tl, "__name__": "rocpy.epilogues.generated"}
    # The text is made of names that were checked and of numbers.
    exec(compile(kernel.text, file, "exec"), names)  # noqa: S102
    return names[kernel.name]


def compile_kernel(
    epilogue: CustomEpilogue,
    arch: str,
    *,
    dtype: Any = "float16",
    layout: str = "nn",
    inputs: Mapping[str, Any] | None = None,
    tile: Tile | None = None,
    even_k: bool = True,
    aligned: bool = True,
    contraction: bool = True,
    folder: Path | None = None,
) -> FusedKernel:
    """Return the code object of a product with an epilogue inlined; no GPU is needed.

    Parameters
    ----------
    epilogue
        The epilogue.
    arch
        Architecture, of :data:`ARCHITECTURES`.
    dtype
        Type of a and b: float16, bfloat16, float32 or one of the 8-bit floats, whose product counts as bfloat16.
    layout
        ``n`` or ``t`` for each of a and b: row-major, or the transposed view of that.
    inputs
        For each input that is read, a pair of the axis along which it broadcasts (``"row"``: one value per column,
        ``"column"``, ``"full"``, ``"scalar"``, ``"number"``) and its type.
    tile
        Tile sizes; the first of :func:`tiles` for a large product by default.
    even_k
        Whether K is a multiple of the tile's K.
    aligned
        Whether all memory begins at a multiple of 16 bytes, and rows of a and b at a multiple of 16 elements.
    contraction
        Whether a multiplication and an addition may be fused; ``TRITON_DEFAULT_FP_FUSION`` is ignored.
    folder
        Where compiled kernels are cached; by default rocpy's cache folder.

    Returns
    -------
    FusedKernel
        The code object, its instructions, and how to launch it.

    Raises
    ------
    InvalidProblemError
        If the architecture or an input is not one of these.
    UnsupportedError
        If Triton is needed and not installed, or the kernel has no such type.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> relu_bias = rocpy.epilogue(lambda x, bias: np.maximum(x + bias, 0))
    >>> kernel = rocpy.epilogues.compile_kernel(relu_bias, "gfx942", inputs={"bias": ("row", "float16")})
    >>> kernel.name, kernel.scratch_bytes, "v_mfma" in kernel.isa
    ('fused_matmul', 0, True)
    """
    if arch not in ARCHITECTURES:
        raise InvalidProblemError(f"arch={arch!r}; kernels are generated for {', '.join(ARCHITECTURES)}")
    if len(layout) != 2 or set(layout) - set("nt"):
        raise InvalidProblemError(f"layout: got {layout!r}, expected two letters of 'n' and 't', for a and for b")
    kernel = text_of(epilogue, name_of(dtype), layout, inputs or {})
    tile = tiles(4096, 4096, arch, name_of(dtype))[0] if tile is None else tile
    return compile_text(kernel, arch, tile=tile, even_k=even_k, aligned=aligned, contraction=contraction, folder=folder)


def compile_text(
    kernel: KernelText,
    arch: str,
    *,
    tile: Tile,
    even_k: bool,
    aligned: bool = True,
    contraction: bool = True,
    folder: Path | None = None,
) -> FusedKernel:
    """Return the code object of a kernel's text, compiled now or before; parameters as of :func:`compile_kernel`."""
    options = {"num_warps": tile.warps, "num_stages": tile.stages, "enable_fp_fusion": contraction}
    constants = {"BM": tile.m, "BN": tile.n, "BK": tile.k, "GROUP": tile.group, "EVEN_K": even_k}
    key = _key(kernel, arch, options, constants, aligned)
    folder = _disk_cache.folder() if folder is None else folder
    version = _version()
    # Without Triton one that any version made will do.
    paths = [folder / f"{key}-{version}.json"] if version else sorted(folder.glob(f"{key}-*.json"), reverse=True)
    compiled = next((record for record in map(_read, paths) if record is not None), None)
    if compiled is None:
        compiled = _compile(kernel, arch, options, constants, aligned, tile)
        _disk_cache.write(paths[0], dataclasses.asdict(compiled))
    return compiled


def _version() -> str:
    # Imported here: it brings `email` and more, which `import rocpy` is to do without.
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("triton")
    return ""


def _key(kernel: KernelText, arch: str, options: Mapping[str, Any], constants: Mapping[str, Any], aligned: bool) -> str:
    signature = [dataclasses.astuple(argument) for argument in kernel.arguments]
    record = [_FORMAT, kernel.text, signature, arch, sorted(options.items()), sorted(constants.items()), aligned]
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()[:32]


def _compile(
    kernel: KernelText,
    arch: str,
    options: Mapping[str, Any],
    constants: Mapping[str, Any],
    aligned: bool,
    tile: Tile,
) -> FusedKernel:
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError:
        raise UnsupportedError(
            f"a fused kernel must be compiled and Triton is not installed: {install_command('fused')}, or use another "
            "lowering"
        ) from None
    function = triton.jit(python_function(kernel))
    signature = {argument.name: argument.signature for argument in kernel.arguments}
    signature |= dict.fromkeys(constants, "constexpr")
    # Where vectors of 16 bytes may begin.
    divisible = {
        (position,): [["tt.divisibility", 16]]
        for position, argument in enumerate(kernel.arguments)
        if aligned and (argument.kind == "pointer" or (argument.kind == "stride" and argument.of in ("a", "b")))
    }
    source = ASTSource(fn=function, signature=signature, constexprs=dict(constants), attrs=divisible)
    with tempfile.TemporaryDirectory(prefix="rocpy-triton-") as scratch, _cached_in(scratch):
        compiled = triton.compile(source, target=GPUTarget("hip", arch, ARCHITECTURES[arch]), options=dict(options))
    return FusedKernel(
        code=compiled.asm["hsaco"],
        isa=compiled.asm["amdgcn"],
        name=compiled.metadata.name,
        arch=arch,
        tile=tile,
        threads=compiled.metadata.num_warps * ARCHITECTURES[arch],
        shared_bytes=compiled.metadata.shared,
        scratch_bytes=int(_SCRATCH.findall(compiled.asm["amdgcn"])[-1]),
        arguments=tuple((argument.name, argument.signature) for argument in kernel.arguments),
    )


@contextlib.contextmanager
def _cached_in(folder: str) -> Any:
    """Keep Triton's own files out of the user's home: what is kept is ours."""
    from triton import knobs

    with knobs.cache.scope():
        knobs.cache.dir = folder
        yield


def _read(path: Path) -> FusedKernel | None:
    """Return a kept kernel; ``None`` where there is none, or none that can be read."""
    data = _disk_cache.read(path)
    try:
        if data is None:
            return None
        data["tile"] = Tile(**data["tile"])
        data["arguments"] = tuple((name, kind) for name, kind in data["arguments"])
        return FusedKernel(**data)
    except (KeyError, TypeError, ValueError):
        return None


def interpret(
    epilogue: CustomEpilogue,
    a: Any,
    b: Any,
    inputs: Mapping[str, Any],
    described: Mapping[str, Any],
    outs: Sequence[Any],
    *,
    tile: Tile,
    alpha: float = 1.0,
) -> None:
    """Run the kernel in Triton's interpreter on torch tensors in CPU memory, into ``outs``.

    It runs what is compiled, statement by statement, and so shows that the text is right; it says nothing of a GPU's
    rounding of ``exp`` and ``erf``.

    Parameters
    ----------
    epilogue
        The epilogue.
    a, b
        Operands with two axes, or three with equal batches.
    inputs
        The inputs by name.
    described
        Kind and type of each, as :func:`compile_kernel` takes them.
    outs
        One tensor for each result.
    tile
        Tile sizes.
    alpha
        Factor of the product.
    """
    from triton.runtime.interpreter import InterpretedFunction

    dtype = str(a.dtype).removeprefix("torch.")
    layout = "".join("n" if x.stride(-1) == 1 else "t" for x in (a, b))
    kernel = text_of(epilogue, dtype, layout, described)
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    arrays = {"a": a, "b": b} | {f"in_{name}": value for name, value in inputs.items()}
    arrays |= {f"out{number}": out for number, out in enumerate(outs)}
    values: list[Any] = []
    for argument in kernel.arguments:
        if argument.kind in ("pointer", "number"):
            values.append(alpha if argument.of == "alpha" else arrays[argument.of])
        elif argument.kind == "extent":
            values.append({"M": m, "N": n, "K": k}[argument.name])
        else:
            values.append(_step(arrays[argument.of], argument.kind))
    batch = a.shape[0] if a.dim() == 3 else 1
    grid = (-(-m // tile.m) * -(-n // tile.n), batch)
    InterpretedFunction(python_function(kernel))[grid](
        *values, BM=tile.m, BN=tile.n, BK=tile.k, GROUP=tile.group, EVEN_K=k % tile.k == 0
    )


def _step(array: Any, kind: str) -> int:
    """Return the distance between an array's rows, or between its batch entries."""
    if kind == "batch":
        return int(array.stride(0)) if array.dim() == 3 else 0
    return int(array.stride(-2) if array.stride(-1) == 1 or array.shape[-1] == 1 else array.stride(-1))
