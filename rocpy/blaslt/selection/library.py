# SPDX-License-Identifier: MIT
"""What the loaded hipBLASLt can be asked for on a device: by the table of releases, its card and the self-test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from rocpy import _core, platform
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.epilogues import EpilogueRow
from rocpy.blaslt.model.lowering import lower, with_copies
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.selection import choice as _choice
from rocpy.blaslt.selection import selftest_record as _selftest_record
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.blaslt.selection.releases import COMBINATIONS, Row, find_row, first_release, number_of, unlisted


class Library(NamedTuple):
    """The loaded hipBLASLt and the card that it computes on.

    Parameters
    ----------
    version
        As ``hipblasLtGetVersion`` gives it.
    card
        Architecture without its features: ``"gfx942"``.
    emulated
        Whether it is the host platform's, which has what it presents and no doubts.
    scope
        What a record of the self-test is filed under.
    """

    version: int
    card: str
    emulated: bool
    scope: str

    @property
    def name(self) -> str:
        """Its name and version, for people."""
        return f"hipBLASLt {self.version // 100000}.{self.version // 100 % 1000}.{self.version % 100}"


_known: dict[tuple[str, int], Library] = {}

# What hipblasLtMatmul answers for a product that it offered an algorithm for and cannot launch: hipblasStatus_t
# INTERNAL_ERROR (dgelu_bgrad of few rows in 0.11.0) and NOT_SUPPORTED.
_LAUNCH_REFUSALS = (6, 7)
# Products that were refused so, by library, class and extents, with the reason; the oldest beyond these are forgotten.
_unlaunchable: dict[tuple[Any, ...], str] = {}
_MOST_UNLAUNCHABLE = 4096


def library(device: int, version: int = 0) -> Library:
    """Return the loaded library on a device; ``version`` spares asking it."""
    chosen = platform.current()
    path = chosen.origin
    library = _known.get((path, device))
    if library is None:
        arch = chosen.devices[max(device, 0)].arch
        if not version:
            _core.probe_versions()
            version = next(row[3] for row in _core.library_facts() if row[0] == "hipblaslt")
        scope = _selftest_record.scope_of(version, arch)
        library = Library(version, arch.partition(":")[0], chosen.is_emulated, scope)
        _known[path, device] = library
    return library


def epilogue_number(row: EpilogueRow, version: int) -> int | None:
    """Return a version's number of an epilogue, ``None`` where it has none."""
    return number_of("epilogue", row.name, version)


@contextmanager
def trial() -> Iterator[None]:
    """Ask the library for all that it has a number for, whatever is doubted or was found wrong: for the self-test.

    Other threads go on with what is known.
    """
    with _tuning_state.trial():
        yield


def is_refused_launch(error: Exception) -> bool:
    """Whether an error is that of a product that the library offered an algorithm for and does not launch."""
    refused = getattr(error, "status", None) in _LAUNCH_REFUSALS
    return refused and getattr(error, "function", None) == "hipblasLtMatmul"


def composes_after(error: Exception, problem: Problem, device: int) -> bool:
    """Note a product that the library refused at its launch; returns whether it is composed from now on.

    Another error, and one of a plain product, which nothing could take the place of, changes nothing.
    """
    plain = problem.epilogue == "default" and not problem.amax
    if _tuning_state.is_trial() or plain or not is_refused_launch(error):
        return False
    here = library(device)
    _unlaunchable[_configuration(problem, here)] = (
        f"{here.name}: hipblasLtMatmul offered an algorithm for {problem} and refused its launch with "
        f"{getattr(error, 'status_name', '')}"
    )
    while len(_unlaunchable) > _MOST_UNLAUNCHABLE:
        del _unlaunchable[next(iter(_unlaunchable))]
    _tuning_state.changed()  # kept plans are made again
    return True


def _configuration(problem: Problem, here: Library) -> tuple[Any, ...]:
    """Return what a refusal at the launch is remembered by: everything but how the operands lie."""
    return (here.scope, class_of(problem, here), problem.m, problem.n, problem.k, problem.batch_shape)


def wrong_algorithms(problem: Problem, device: int) -> frozenset[tuple[int, str]]:
    """Return id and name of the algorithms that gave wrong numbers on this machine for products like one."""
    here = library(device)
    return _selftest_record.wrong_algorithms(here.scope, class_of(problem, here))


_choice.set_known_wrong(wrong_algorithms)


def all_wrong(problem: Problem) -> str:
    """Return why a product whose algorithms all gave wrong numbers is not asked for."""
    return f"{problem}: on this machine, every algorithm that the library offers has given wrong results"


def keep_wrong(problem: Problem, device: int, algorithm: Algorithm | None, reason: str) -> None:
    """Keep that an algorithm gives wrong numbers for products like one, or that all do, so that they are composed."""
    here = library(device)
    name = class_of(problem, here)
    if algorithm is not None:
        name = _selftest_record.name_of_algorithm(name, algorithm.id, algorithm.name)
    _selftest_record.note(here.scope, {name: _selftest_record.Verdict(False, 1, reason, problem.to_json())})
    _tuning_state.changed()


def record_changed() -> None:
    """Plan anew what was planned by the self-test's record as it was before."""
    _tuning_state.changed()


def combinations(problem: Problem, card: str) -> list[Row]:
    """Return the rows of combinations that a problem on a card is one of."""
    return [row for row in COMBINATIONS if row.applies is not None and row.applies(problem, card)]


def class_of(problem: Problem, here: Library) -> str:
    """Return the class of products that one result of the self-test speaks for."""
    types = f"{problem.a.dtype} x {problem.b.dtype} -> {problem.dtype}"
    scales = ", ".join(
        f"{name} {kind}"
        for name, kind in (("scale_a", problem.scale_a), ("scale_b", problem.scale_b), ("amax", problem.amax))
        if kind
    )
    marks = "; ".join(row.name for row in combinations(problem, here.card) if not row.numbers)
    return "; ".join(part for part in (f"{problem.epilogue}: {types} in {problem.compute}", scales, marks) if part)


def extension(problem: Problem, device: int = 0) -> str:
    """Return why a product is the host platform's own, as AMD lists it for no card; empty where it is not."""
    here = library(device)
    why = unlisted(problem, here.version) if here.emulated else ""
    return f"{problem}: an extension of the host platform: {why}" if why else ""


def refusal(problem: Problem, device: int = 0, version: int = 0) -> str:
    """Return why the loaded library is not asked for a product itself; empty where it is.

    What a release lacks is never asked for. What its source shows at fault is not asked for until a self-test on this
    machine has found it right; and not what such a test found wrong.
    """
    here = library(device, version)
    if _unlaunchable and not _tuning_state.is_trial() and _configuration(problem, here) in _unlaunchable:
        return _unlaunchable[_configuration(problem, here)]
    number = epilogue_number(problem.row, here.version)
    if number is None and problem.row.enumerator is None:
        return _lacking(problem, here)  # no release has the epilogue; tile programs or a composition take its place
    absent = _absent(problem, here, number) or _lacking(problem, here) or _doubt(problem, here, final=True)
    if absent or _tuning_state.is_trial():
        return absent
    recorded = _selftest_record.verdict(here.scope, class_of(problem, here))
    if recorded is not None:
        return "" if recorded.passed else f"{here.name}: {recorded.reason}"
    return _doubt(problem, here, final=False)


def lacking(problem: Problem, device: int = 0, version: int = 0) -> str:
    """Return what the loaded library lacks for a product whatever its epilogue; empty where it lacks nothing."""
    return _lacking(problem, library(device, version))


def _doubt(problem: Problem, here: Library, *, final: bool) -> str:
    """Return why a product is not asked for although the library has a number for it; empty for no reason."""
    if here.emulated:
        return ""
    row = find_row("epilogue", problem.epilogue)
    doubted = [] if row is None else [(f"epilogue {problem.epilogue!r}", row.doubt(here.version, final))]
    doubted += [(each.name, each.doubt(here.version, final)) for each in combinations(problem, here.card)]
    return next((f"{here.name} on {here.card}: {name}: {why}" for name, why in doubted if why), "")


def _absent(problem: Problem, here: Library, number: int | None) -> str:
    """Return why a release has no such epilogue; empty where it has."""
    if number is not None:
        return ""
    row = find_row("epilogue", problem.epilogue)
    first = "" if row is None else first_release(row)
    since = (
        f"it was added in ROCm {first}"
        if first and row is not None and _later(row, here.version)
        else "its number belongs to another epilogue"
    )
    return (
        f"{here.name} has no epilogue {problem.epilogue!r}: {since}, and the library computes the plain product for "
        "an unknown number"
    )


def _lacking(problem: Problem, here: Library) -> str:
    """Return which combination or attribute a release lacks for a product; empty for none."""
    for row in combinations(problem, here.card):
        if row.numbers and row.number(here.version) is None:
            return f"{here.name} has no {row.name} products: {problem}"
    for attribute in _attributes(problem, here.version):
        if number_of("attribute", attribute, here.version) is None:
            return f"{here.name} has no attribute {attribute}"
    return ""


def _later(row: Row, version: int) -> bool:
    """Whether a row came after a version."""
    return version < row.numbers[0][0]


def _attributes(problem: Problem, version: int) -> Iterator[str]:
    """Yield the attributes that a product needs beyond those of every release."""
    kinds = {problem.scale_a, problem.scale_b}
    if "block32" in kinds:
        yield "A_SCALE_MODE"
    elif "vector" in kinds and number_of("attribute", "A_SCALE_MODE", version) is None:
        yield "A_SCALE_POINTER_VEC_EXT"
    if problem.amax:
        yield "AMAX_D_POINTER"
    if problem.row.clamp:
        yield "EPILOGUE_ACT_ARG0_EXT"
    if problem.batch > 1 and (problem.bias is not None or problem.row.gradient):
        lowered = lower(problem)
        if lowered.copies:
            lowered = lower(with_copies(problem, lowered.copies))
        if lowered.bias_batch_stride:
            yield "BIAS_BATCH_STRIDE"
