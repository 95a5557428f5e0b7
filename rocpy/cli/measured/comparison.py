# SPDX-License-Identifier: MIT
"""Two runs of the benchmarks beside each other: what has become slower, beyond the spread of both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocpy.cli._output import UsageError

Row = Mapping[str, Any]

LEAST_CHANGE = 0.02  # of a time: two runs of one program differ by more on a busy machine
INSTRUCTIONS_CHANGE = 0.03  # of a count: addresses decide how often a loop of the allocator turns
COUNTS = ("instructions", "library calls", "allocations")
COLUMNS = ("benchmark", "who", "old", "new", "speed, old = 1", "speed vs peer, old", "speed vs peer, new", "verdict")
NUMBERS = COLUMNS[2:7]


@dataclass(frozen=True)
class Change:
    """One row of both runs.

    Parameters
    ----------
    case, library
        The group with its number of threads, and the rival.
    old, new
        The best time in microseconds; of counts, the instructions.
    peer_old, peer_new
        Speed relative to the group's peer, which the clock and the machine change little; None where it has none.
    verdict
        "slower", "faster", "grown", "shrunk", or "" within the spread of both; peers are not judged.
    """

    case: str
    library: str
    old: float
    new: float
    peer_old: float | None
    peer_new: float | None
    verdict: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, a cell for each of ``COLUMNS``."""
        times = (f"{self.old:,.4g}", f"{self.new:,.4g}", f"{self.old / self.new:.2f}" if self.new else "")
        peers = ("" if one is None else f"{one:.2f}" for one in (self.peer_old, self.peer_new))
        return (self.case, self.library, *times, *peers, self.verdict)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a run: a file that ``rocpy bench`` wrote, or a folder of them.

    Raises
    ------
    UsageError
        The file cannot be read, or is something else.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    documents = [one for one in map(_document, files) if isinstance(one, dict) and isinstance(one.get("rows"), list)]
    documents = [one for one in documents if one["rows"] and all(map(_is_row, one["rows"]))]
    if not documents:
        raise UsageError(f"rocpy bench: {path} holds no results of `rocpy bench`")
    return documents


def _document(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"rocpy bench: cannot read {path} ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise UsageError(f"rocpy bench: {path} is not JSON") from None


def _is_row(row: object) -> bool:
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in ("benchmark", "case", "label")):
        return False
    figures = COUNTS if "instructions" in row else ("best_us", "median_us", "spread")
    return all(isinstance(row.get(name), int | float) for name in figures)


def changes(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[Change]:
    """Return the rows that both runs have, in the order of the new one."""
    before = {_key(row): row for document in old for row in document["rows"]}
    after = [row for document in new for row in document["rows"] if _key(row) in before]
    return [_change(before[_key(row)], row) for row in after]


def left_out(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Return how many rows only the old run has, and how many only the new one."""
    before, after = ({_key(row) for document in run for row in document["rows"]} for run in (old, new))
    return len(before - after), len(after - before)


def machines(documents: Iterable[dict[str, Any]]) -> set[tuple[str, str]]:
    """Return the devices that a run was measured on, each with its instruction set."""
    return {_machine(row) for document in documents for row in document["rows"]}


def _key(row: Row) -> tuple[object, ...]:
    return tuple(row.get(name) for name in ("benchmark", "case", "dtype", "threads", "label"))


def _machine(row: Row) -> tuple[str, str]:
    return str(row.get("device", "unknown")), str(row.get("isa", "unknown"))


def _change(old: Row, new: Row) -> Change:
    threads = new.get("threads")
    case = f"{new['benchmark']}: {new['case']}" + ("" if threads is None else f", threads: {threads}")
    if "instructions" in old and "instructions" in new:
        return Change(case, new["label"], old["instructions"], new["instructions"], None, None, count_verdict(old, new))
    peers = (None, None)
    if old.get("against") == new.get("against"):
        peers = (old.get("speed_best"), new.get("speed_best"))
    ours = new["label"].startswith("rocpy")
    return Change(case, new["label"], old["best_us"], new["best_us"], *peers, _verdict(old, new, peers) if ours else "")


def _verdict(old: Row, new: Row, peers: tuple[float | None, float | None]) -> str:
    """Judge times on one machine, and speeds relative to the peer on two."""
    margin = old["spread"] + new["spread"] + LEAST_CHANGE
    if _machine(old) == _machine(new):
        ratios = [old[name] / new[name] for name in ("best_us", "median_us")]
    elif peers[0] and peers[1]:
        ratios = [peers[1] / peers[0]]
    else:
        return ""
    if max(ratios) < 1 - margin:
        return "slower"
    return "faster" if min(ratios) > 1 + margin else ""


def count_verdict(old: Row, new: Row) -> str:
    """Return "grown" if one of the counts is higher than it was, "shrunk" if one is lower and none higher.

    Parameters
    ----------
    old, new
        Rows with each of ``COUNTS``; instructions may differ by 3 %.
    """
    slack = {"instructions": INSTRUCTIONS_CHANGE * old["instructions"]}
    signs = [
        (new[name] > old[name] + slack.get(name, 0)) - (new[name] < old[name] - slack.get(name, 0)) for name in COUNTS
    ]
    return "grown" if 1 in signs else "shrunk" if -1 in signs else ""
