# SPDX-License-Identifier: MIT
"""What each release of hipBLASLt has: one row for each enumerator, attribute and combination, with the source of it.

A library takes the number of an epilogue that it does not know without an error, activates nothing and leaves a bias
gradient unwritten. So nothing is asked of a release that its own source does not set and select.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rocpy.blaslt.model.problem import Problem

__all__ = ["COMBINATIONS", "RELEASES", "ROWS", "Doubt", "Row", "find_row", "first_release", "number_of", "unlisted"]

RELEASES = {
    "6.0": 600,
    "6.1": 700,
    "6.2": 800,
    "6.3": 1000,
    "6.4": 1200,
    "7.0": 100000,
    "7.1": 100100,
    "7.2": 100200,
    "7.2.1": 100202,
    "10.0": 100401,
}
"""``hipblasLtGetVersion`` of hipBLASLt in each ROCm release; ROCm 7.2.1 also shipped 1.2.1."""

EVERY = 1 << 31


class Doubt(NamedTuple):
    """Versions in which a row is not used although the number is there, until a machine's self-test finds it right.

    Parameters
    ----------
    since, until
        The first version, and the first that is free of it.
    reason
        What the release's source lacks, or what was seen.
    final
        Whether no self-test can find it right: bits that mean other values are so by chance at most.
    """

    since: int
    until: int
    reason: str
    final: bool = False


class Row(NamedTuple):
    """What is known of one enumerator, attribute or combination.

    Parameters
    ----------
    kind
        ``"epilogue"``, ``"attribute"`` or ``"combination"``.
    name
        rocpy's name of an epilogue, AMD's of an attribute without its prefix, or a name for a combination.
    numbers
        Pairs of a version and the number that holds from it on, ``None`` where there is none, in ascending order. Of a
        combination: 1 from the version on that it came with; empty where only doubts tell.
    source
        Where AMD says so.
    doubts
        Versions in which it is not to be relied on.
    applies
        Of a combination: whether a problem on a card (``"gfx942"``) is one.
    """

    kind: str
    name: str
    numbers: tuple[tuple[int, int | None], ...]
    source: str
    doubts: tuple[Doubt, ...] = ()
    applies: Callable[[Problem, str], bool] | None = None

    def number(self, version: int) -> int | None:
        """Return the number in a version, ``None`` where that has none."""
        index = bisect.bisect_right(self.numbers, version, key=lambda pair: pair[0])
        return self.numbers[index - 1][1] if index else None

    def doubt(self, version: int, final: bool = False) -> str:
        """Return why a version's row is not to be relied on, empty where it is; ``final``: whatever a test finds."""
        return next((one.reason for one in self.doubts if one.since <= version < one.until and one.final >= final), "")


# Of 6.0.2, 6.1.5, 6.2.4, 6.3.3, 6.4.3, 7.0.2, 7.1.1, 7.2.1 and 10.0.
_HEADERS = "hipblaslt.h of the releases from 6.0 to 10.0"
_CHANGES = "CHANGELOG.md of hipBLASLt"
_PR = "ROCm/rocm-libraries pull request"
_GELU_PROGRAM = "hipBLASLt 0.11.0 on gfx942 (tests/amd/gelu_bfloat16.c)"

_BIAS_NOT_SET = Doubt(
    100100,
    EVERY,
    "tensileUseBias() in tensile_host.cpp does not list it, so that the bias may be left out",
)
_SIGMOID_NOT_SELECTED = Doubt(
    100202,
    EVERY,
    "is_act_enabled() in utility.hpp does not list it, so that no kernel with an activation is selected "
    f"({_PR} 8585, closed unmerged)",
)


def _since(kind: str, name: str, version: int, number: int, source: str, *doubts: Doubt) -> Row:
    return Row(kind, name, ((version, number),), source, doubts)


_EPILOGUES = (
    _since("epilogue", "default", 100, 1, _HEADERS),
    _since("epilogue", "bias", 100, 4, _HEADERS),
    _since("epilogue", "relu", 100, 2, _HEADERS),
    _since("epilogue", "relu_bias", 100, 6, _HEADERS),
    _since("epilogue", "gelu", 100, 32, _HEADERS),
    _since("epilogue", "gelu_bias", 100, 36, _HEADERS),
    _since("epilogue", "gelu_aux", 300, 160, f"{_CHANGES}, 0.3.0; {_HEADERS}"),
    _since("epilogue", "gelu_aux_bias", 300, 164, f"{_CHANGES}, 0.3.0; {_HEADERS}"),
    _since("epilogue", "dgelu", 300, 192, f"{_CHANGES}, 0.3.0; ROCm/hipBLASLt pull request 92"),
    _since("epilogue", "dgelu_bgrad", 300, 208, f"{_CHANGES}, 0.3.0; ROCm/hipBLASLt pull request 97"),
    _since("epilogue", "bgrada", 300, 256, f"{_CHANGES}, 0.3.0; {_HEADERS}"),
    _since("epilogue", "bgradb", 300, 512, f"{_CHANGES}, 0.3.0; {_HEADERS}"),
    _since("epilogue", "silu", 100000, 65536, f"{_CHANGES}, 1.0.0; {_HEADERS}"),
    _since("epilogue", "silu_bias", 100000, 65540, f"{_CHANGES}, 1.0.0; {_HEADERS}"),
    _since("epilogue", "relu_aux", 100100, 130, f"{_CHANGES}, 1.1.0; {_PR} 1880"),
    _since("epilogue", "relu_aux_bias", 100100, 134, f"{_CHANGES}, 1.1.0; {_PR} 1880", _BIAS_NOT_SET),
    _since("epilogue", "clamp", 100100, 131072, f"{_CHANGES}, 1.1.0; {_PR} 1880"),
    _since("epilogue", "clamp_bias", 100100, 131076, f"{_CHANGES}, 1.1.0; {_PR} 1880"),
    _since("epilogue", "clamp_aux", 100100, 131200, f"{_CHANGES}, 1.1.0; {_PR} 1880"),
    _since("epilogue", "clamp_aux_bias", 100100, 131204, f"{_CHANGES}, 1.1.0; {_PR} 1880", _BIAS_NOT_SET),
    # 7.2.0 answers to a number that no header tells; that of development versions changed back and forth.
    Row(
        "epilogue",
        "sigmoid",
        ((100202, 262144), (100300, None), (100401, 1024), (100402, None)),
        f"{_PR}s 2274 and 4032; hipblaslt.h of ROCm 7.2.1 and 10.0",
        (_SIGMOID_NOT_SELECTED,),
    ),
    Row(
        "epilogue",
        "sigmoid_bias",
        ((100202, 262148), (100300, None)),
        f"{_PR} 4032; hipblaslt.h of ROCm 7.2.1",
        (_SIGMOID_NOT_SELECTED,),
    ),
    *(
        _since(
            "epilogue",
            name,
            100300,
            number,
            f"{_PR} 4371 of February 2026; hipblaslt.h of ROCm 10.0",
            Doubt(100300, 100400, "it was added while the version was 1.3.0, and an earlier build ignores it"),
        )
        for name, number in (("drelu", 136), ("drelu_bgrad", 152))
    ),
)

_ATTRIBUTES = (
    *(
        _since("attribute", name, 600, number, _HEADERS)
        for name, number in (
            ("TRANSA", 0),
            ("TRANSB", 1),
            ("EPILOGUE", 2),
            ("BIAS_POINTER", 3),
            ("BIAS_DATA_TYPE", 4),
            ("A_SCALE_POINTER", 5),
            ("B_SCALE_POINTER", 6),
            ("C_SCALE_POINTER", 7),
            ("D_SCALE_POINTER", 8),
            ("EPILOGUE_AUX_SCALE_POINTER", 9),
            ("EPILOGUE_AUX_POINTER", 10),
            ("EPILOGUE_AUX_LD", 11),
            ("EPILOGUE_AUX_BATCH_STRIDE", 12),
            ("POINTER_MODE", 13),
        )
    ),
    _since("attribute", "AMAX_D_POINTER", 800, 14, f"{_CHANGES}, 0.8.0"),
    _since("attribute", "COMPUTE_INPUT_TYPE_A_EXT", 800, 100, f"{_CHANGES}, 0.8.0"),
    _since("attribute", "COMPUTE_INPUT_TYPE_B_EXT", 800, 101, f"{_CHANGES}, 0.8.0"),
    Row("attribute", "A_SCALE_POINTER_VEC_EXT", ((1000, 102), (100000, None)), f"{_CHANGES}, 1.0.0; {_HEADERS}"),
    Row("attribute", "B_SCALE_POINTER_VEC_EXT", ((1000, 103), (100000, None)), f"{_CHANGES}, 1.0.0; {_HEADERS}"),
    _since("attribute", "EPILOGUE_AUX_DATA_TYPE", 100000, 22, "ROCm/hipBLASLt pull request 1787 of March 2025"),
    _since("attribute", "A_SCALE_MODE", 100000, 31, f"{_CHANGES}, 1.0.0"),
    _since("attribute", "B_SCALE_MODE", 100000, 32, f"{_CHANGES}, 1.0.0"),
    _since("attribute", "EPILOGUE_ACT_ARG0_EXT", 100100, 102, f"{_CHANGES}, 1.1.0"),
    _since("attribute", "EPILOGUE_ACT_ARG1_EXT", 100100, 103, f"{_CHANGES}, 1.1.0"),
    _since("attribute", "SM_COUNT_TARGET", 100400, 33, f"{_CHANGES}, 1.4.0"),
    _since("attribute", "STREAMK_TILE_SCHEDULING_EXT", 100400, 104, f"{_CHANGES}, 1.4.0"),
    _since("attribute", "BIAS_BATCH_STRIDE", 100401, 23, f"{_PR} 7512 of May 2026"),
)

# Cards by the dialect of 8-bit floats that their matrix instructions take; all others multiply neither.
FNUZ_CARDS = ("gfx940", "gfx941", "gfx942")
OCP_CARDS = ("gfx950", "gfx12")
MX_CARDS = ("gfx950", "gfx1250")


def _has(problem: Problem, ending: str) -> bool:
    types = (problem.a.dtype, problem.b.dtype, problem.dtype)
    return any(each.startswith("float8_") and each.endswith("fnuz") == (ending == "fnuz") for each in types)


def _sums_result(problem: Problem) -> bool:
    return problem.row.gradient == "bgrad"


def _takes_dialect(card: str, cards: tuple[str, ...]) -> bool:
    return card.startswith(cards)


def _has_blocks(problem: Problem) -> bool:
    return "block32" in (problem.scale_a, problem.scale_b)


def _sums_few_rows(problem: Problem, _: str) -> bool:
    # One kernel for each pair of tile and height: the height is M rounded down to an even number.
    return _sums_result(problem) and problem.m < 32 and problem.m // 2 * 2 not in (0, 2, 4, 8, 16)


def _combination(name: str, applies: Callable[[Problem, str], bool], source: str, *doubts: Doubt) -> Row:
    return Row("combination", name, (), source, doubts, applies)


_COMBINATIONS = (
    _combination(
        "gradient of few rows",
        _sums_few_rows,
        "outputReductionKernelName() in ContractionSolution.cpp against the list in KernelWriterReduction.py, in every "
        "version read (tests/amd/dgelu_bgrad_rows.c)",
        Doubt(
            0,
            EVERY,
            "its sum over fewer than 32 rows needs a kernel that is not generated, and the launch fails",
        ),
    ),
    _combination(
        "gradient of a batch",
        lambda problem, _: _sums_result(problem) and problem.batch > 1,
        "generateReductionCall() in ContractionSolution.cpp, in every version read; testing_matmul.hpp asserts one",
        Doubt(0, EVERY, "its sum over rows is launched for the first entry of a batch only"),
    ),
    _combination(
        "gradient of gelu in bfloat16",
        lambda problem, _: problem.row.name in ("dgelu", "dgelu_bgrad") and problem.dtype == "bfloat16",
        f"{_GELU_PROGRAM}: their machine code",
        Doubt(
            0,
            100000,
            "its kernels that load aux by single elements take every second one from the wrong half of a register",
        ),
    ),
    _combination(
        "gelu with aux in bfloat16",
        lambda problem, _: problem.row.name in ("gelu_aux", "gelu_aux_bias") and problem.dtype == "bfloat16",
        f"{_GELU_PROGRAM}: their machine code",
        Doubt(
            0,
            100000,
            "its kernels that store aux by single elements round it in place, and compute GELU of the argument plus "
            "half an ulp",
        ),
    ),
    _combination(
        "float8 OCP on this card",
        lambda problem, card: _has(problem, "fn") and not _has_blocks(problem) and not _takes_dialect(card, OCP_CARDS),
        "data-type-support.rst; the matrix instructions of gfx950 and gfx12",
        Doubt(
            0,
            EVERY,
            "the card's matrix instructions do not take OCP's 8-bit floats, whose bits mean other values",
            True,
        ),
    ),
    _combination(
        "float8 FNUZ on this card",
        lambda problem, card: _has(problem, "fnuz") and not _takes_dialect(card, FNUZ_CARDS),
        "data-type-support.rst; the matrix instructions of gfx940 to gfx942",
        Doubt(
            0, EVERY, "the card's matrix instructions do not take FNUZ 8-bit floats, whose bits mean other values", True
        ),
    ),
    _combination(
        "MX on this card",
        lambda problem, card: _has_blocks(problem) and not _takes_dialect(card, MX_CARDS),
        f"{_CHANGES}, 1.0.0; data-type-support.rst",
        Doubt(0, EVERY, "the card has no matrix instructions with scales by blocks", True),
    ),
    _combination(
        "bfloat16 to float32 on gfx90a",
        lambda problem, card: card == "gfx90a" and (problem.a.dtype, problem.dtype) == ("bfloat16", "float32"),
        f"{_CHANGES}, 1.2.0",
        Doubt(0, 100200, "there are no such kernels before hipBLASLt 1.2"),
    ),
    Row("combination", "complex", ((100400, 1),), f"{_CHANGES}, 1.4.0", (), lambda problem, _: problem.is_complex),
)

ROWS: tuple[Row, ...] = (*_EPILOGUES, *_ATTRIBUTES, *_COMBINATIONS)
_BY_NAME = {(row.kind, row.name): row for row in ROWS}
COMBINATIONS = _COMBINATIONS


def find_row(kind: str, name: str) -> Row | None:
    """Return a row, ``None`` where no release has such a thing."""
    return _BY_NAME.get((kind, name))


def number_of(kind: str, name: str, version: int) -> int | None:
    """Return the number of an enumerator or attribute in a version; ``None`` where it has none."""
    row = find_row(kind, name)
    return None if row is None else row.number(version)


def first_release(row: Row) -> str:
    """Return the first ROCm release whose hipBLASLt has an enumerator or attribute; empty where none is known."""
    return next((rocm for rocm, version in RELEASES.items() if row.number(version) is not None), "")


def unlisted(problem: Problem, version: int) -> str:
    """Return why AMD lists a product for no card, or for none of a version's; empty where it does."""
    row, a = problem.row, problem.a.dtype
    narrow = a.startswith(("float8_", "float6_", "float4_", "int8"))
    other = "fnuz" if version >= 100000 else "fn"
    reasons = (
        (a == "float64" and row.name != "default", "float64 is listed with the default epilogue only"),
        (bool(row.gradient) and problem.batch > 1, "bias gradients are listed for single products only"),
        (a == "int8" and problem.dtype not in ("int32", "int8"), "int8 is listed with integer results only"),
        (
            row.aux == "store" and row.name.startswith(("relu", "clamp")) and narrow,
            "it is listed for 16-bit and 32-bit floats only",
        ),
        (not _has_blocks(problem) and _has(problem, other), "a device supports one 8-bit float format"),
    )
    return next((why for holds, why in reasons if holds), "")
