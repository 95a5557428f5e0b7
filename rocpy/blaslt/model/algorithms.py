# SPDX-License-Identifier: MIT
"""An algorithm as the platform offered it for one problem: plain data, where it holds, and how it is found again."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rocpy import _json, platform
from rocpy._integers import integer_of
from rocpy._messages.html import table
from rocpy._messages.suggestions import did_you_mean
from rocpy.blaslt.model.problem import Problem, check_record
from rocpy.errors import InvalidProblemError

__all__ = ["Algorithm", "Algorithms"]

FORMAT = 1

# Algorithms that are asked for where one is to be found again or a best one to be measured: more than the heuristic
# ranks, so that hipBLASLt walks its library, which takes milliseconds.
LISTED = 32
# All that a library has, for one that the user names.
ALL = 1 << 14


@dataclasses.dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to compute a problem, from the heuristic of ``hipblasLtMatmulAlgoGetHeuristic``.

    Parameters
    ----------
    id
        Solution index, valid only for one build of one library on one architecture.
    name
        Name of the kernel, or ``""`` if the platform does not report it.
    workspace_bytes
        Required scratch memory, in bytes.
    waves
        Predicted waves over the device; 0 if the library does not report them.
    lowering
        How the epilogue is computed; ``"native"``: by the library's own kernel.
    elapsed_ms
        Measured time in milliseconds, ``None`` until measured.
    rank
        Index in the heuristic's order, from 0.
    source
        Where the choice comes from: ``"heuristic"``, ``"reproducible"`` (the heuristic's first of those that do what
        ``options(reproducible=)`` asks for), ``"tuned"``, or ``"pinned"`` by the user.
    library, arch
        The library with its version, and the architecture, for which the id is valid; ``""`` if unknown: then only
        the kernel's name is checked.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> from rocpy.blaslt import Algorithm
    >>> a = np.ones((64, 64), np.float32)
    >>> with rocpy.Matmul(a, a) as mm:
    ...     best = mm.plan()[0]
    >>> best.lowering, best.elapsed_ms
    ('native', None)
    >>> Algorithm.from_json(best.to_json()) == best
    True
    """

    id: int
    name: str
    workspace_bytes: int
    waves: float
    lowering: str = "native"
    elapsed_ms: float | None = None
    rank: int = 0
    source: str = "heuristic"
    library: str = ""
    arch: str = ""

    def __repr__(self) -> str:
        """Return what ``str`` does, in brackets."""
        return f"<Algorithm {self}>"

    def _repr_html_(self) -> str:
        return table(
            "algorithm", (), [(name, value) for name, value in dataclasses.asdict(self).items() if value != ""]
        )

    def __str__(self) -> str:
        """Return name, id and workspace on one line, and the time where it was measured."""
        time = "" if self.elapsed_ms is None else f", {self.elapsed_ms:.4g} ms"
        return (
            f"{self.name or 'algorithm'} #{self.id}, workspace {self.workspace_bytes} bytes, {self.lowering}, "
            f"{self.source}{time}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the algorithm as a dict of plain values, for JSON and for :meth:`from_dict`."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Algorithm:
        """Return the algorithm that :meth:`to_dict` wrote; whether it is valid here is checked when it is used.

        Raises
        ------
        InvalidProblemError
            If it is not such a record; the message names the field.
        """
        if not isinstance(data, Mapping):
            raise InvalidProblemError(f"an algorithm's record is a dict, not {type(data).__name__}")
        check_format(data, "an algorithm's record")
        values = {key: value for key, value in data.items() if key != "format"}
        for name, (kinds, required) in _FIELDS.items():
            if name not in values:
                if required:
                    raise InvalidProblemError(f"an algorithm's record lacks {name!r}")
            elif not isinstance(values[name], kinds) or isinstance(values[name], bool) or _is_absurd(values[name]):
                raise InvalidProblemError(f"an algorithm's record has {name}={values[name]!r}")
        unknown = values.keys() - _FIELDS.keys()
        if unknown:
            raise InvalidProblemError(f"an algorithm's record has no field {', '.join(sorted(map(repr, unknown)))}")
        return cls(**values)

    def to_json(self) -> str:
        """Return the algorithm as a JSON object."""
        return _json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Algorithm:
        """Return the algorithm that :meth:`to_json` wrote."""
        try:
            data = _json.loads(text)
        except (ValueError, RecursionError, TypeError) as error:
            raise InvalidProblemError(f"an algorithm's record is not JSON: {error}") from None
        return cls.from_dict(data)

    def is_same(self, other: Algorithm) -> bool:
        """Whether another one is the same algorithm, regardless of measurements and predictions."""
        return self.id == other.id and self.name == other.name


class Algorithms(list[Algorithm]):
    """Algorithms, best first: a list, which a notebook shows as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        columns = ("index", "name", "id", "workspace bytes", "lowering", "source", "ms")
        rows = (
            (
                index,
                x.name,
                x.id,
                x.workspace_bytes,
                x.lowering,
                x.source,
                None if x.elapsed_ms is None else f"{x.elapsed_ms:.4g}",
            )
            for index, x in enumerate(self)
        )
        return table("algorithms", columns, rows)


_FIELDS: dict[str, tuple[tuple[type, ...], bool]] = {
    "id": ((int,), True),
    "name": ((str,), True),
    "workspace_bytes": ((int,), True),
    "waves": ((int, float), True),
    "lowering": ((str,), False),
    "elapsed_ms": ((int, float, type(None)), False),
    "rank": ((int,), False),
    "source": ((str,), False),
    "library": ((str,), True),
    "arch": ((str,), True),
}


def _is_absurd(value: object) -> bool:
    """Whether a number is one that no library gives."""
    if isinstance(value, int):
        return not -1 <= value < 1 << 63
    return isinstance(value, float) and not math.isfinite(value)


def check_format(record: Mapping[str, Any], what: str) -> None:
    """Refuse a record that another rocpy wrote in another format."""
    if record.get("format") != FORMAT:
        raise InvalidProblemError(f"{what} has format {record.get('format')!r}; this rocpy reads format {FORMAT}")


@functools.cache
def origin(device: int) -> tuple[str, str]:
    """Return what the ids of a device's algorithms hold for: the library with its version, and the architecture."""
    chosen = platform.current()
    return f"hipblaslt {chosen.libraries['hipblaslt'].version}", chosen.devices[device].arch


def read(requested: object) -> Algorithm | int | str:
    """Return what the user named an algorithm by: a record as an Algorithm, an index, or a kernel's name."""
    if isinstance(requested, Mapping):
        inner = requested.get("algorithm", requested)
        return inner if isinstance(inner, Algorithm) else Algorithm.from_dict(inner)
    if isinstance(requested, str) and requested.lstrip().startswith("{"):
        raise InvalidProblemError("algorithm: got JSON text, expected the record itself; pass json.loads(text)")
    if isinstance(requested, (Algorithm, str)):
        return requested
    index = integer_of(requested)
    if index is not None:
        if _is_absurd(index):
            text = index if abs(index) < 2**64 else f"of {index.bit_length()} bits"
            raise InvalidProblemError(f"algorithm {text} is not the index of an algorithm; they are numbered from 0")
        return index
    raise InvalidProblemError(
        f"algorithm: got {type(requested).__name__}, expected an Algorithm, its record, an index into .algorithms, or "
        "a kernel's name"
    )


def check_origin(algorithm: Algorithm, device: int) -> None:
    """Refuse an algorithm of another library, version or architecture, where its id is another kernel's."""
    here = origin(device)
    own = (algorithm.library or here[0], algorithm.arch or here[1])
    if own != here:
        raise InvalidProblemError(
            f"algorithm {algorithm.name or algorithm.id} was recorded for {own[0]} on {own[1]}, but the current "
            f"platform is {here[0]} on {here[1]}: its id would select a different kernel; call plan() and choose again"
        )


def find(
    requested: object, algorithms: Sequence[Algorithm], device: int, problem: Problem | None = None
) -> Algorithm | None:
    """Return the algorithm that the user means, or ``None``; a wrong index or record is refused.

    ``problem`` is the one that a record must be of, if it says of which it is.
    """
    if isinstance(requested, Mapping):
        if "algorithm" in requested:
            check_format(requested, "what was exported of an algorithm")
        if "problem" in requested and problem is not None:
            check_record(requested["problem"], problem)
    wanted = read(requested)
    if isinstance(wanted, str):
        return next((mine for mine in algorithms if mine.name == wanted), None)
    if isinstance(wanted, int):
        if not 0 <= wanted < len(algorithms):
            raise InvalidProblemError(f"algorithm {wanted}: this product has {len(algorithms)}, numbered from 0")
        return algorithms[wanted]
    check_origin(wanted, device)
    return next((mine for mine in algorithms if mine.is_same(wanted)), None)


class NamedBy(enum.IntEnum):
    """How the user names an algorithm."""

    INDEX = 0
    NAME = 1
    RECORD = 2


class AlgorithmKey(NamedTuple):
    """What a plan's key holds of the algorithm that the user names."""

    named_by: NamedBy
    number: int = 0  # its index, or its id in the library
    name: int = 0  # the hash of its name


def key_words(requested: object, device: int) -> AlgorithmKey:
    """Return what a plan's key holds of the algorithm that the user names; one of another library is refused."""
    wanted = read(requested)
    if isinstance(wanted, int):
        return AlgorithmKey(NamedBy.INDEX, number=wanted)
    if isinstance(wanted, str):
        return AlgorithmKey(NamedBy.NAME, name=hash(wanted))
    check_origin(wanted, device)
    return AlgorithmKey(NamedBy.RECORD, wanted.id, hash(wanted.name))


def missing(requested: object, offered: Sequence[Algorithm]) -> InvalidProblemError:
    """Return the error for an algorithm that the platform does not offer for the problem."""
    names = ", ".join(mine.name or f"#{mine.id}" for mine in offered[:8])
    more = f" and {len(offered) - 8} more" if len(offered) > 8 else ""
    label = requested if isinstance(requested, (str, Algorithm)) else read(requested)
    text = ascii(label) if isinstance(label, str) and not label.isprintable() else label
    near = did_you_mean(label, (mine.name for mine in offered))
    return InvalidProblemError(
        f"algorithm {text} is not one of this product's; its algorithms are {names or 'none'}{more}{near}"
    )
