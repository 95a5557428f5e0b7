# SPDX-License-Identifier: MIT
"""What a check of the doctor is: a function over a machine that finds things, each with what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from rocpy.cli._machine import Machine

Status = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """One thing that a check found: what was seen, and what to do if something is to be done."""

    status: Status
    seen: str
    fix: str = ""


@dataclass(frozen=True)
class Check:
    """A named check; level 1 opens no library, 2 loads the platform, 3 computes."""

    name: str
    level: int
    run: Callable[[Machine], Iterator[Finding]]


CHECKS: list[Check] = []


def check(
    level: int, checks: list[Check] = CHECKS
) -> Callable[[Callable[[Machine], Iterator[Finding]]], Callable[[Machine], Iterator[Finding]]]:
    """Register the function as a check, the doctor's if no other list is given; its name is what the user reads."""

    def register(function: Callable[[Machine], Iterator[Finding]]) -> Callable[[Machine], Iterator[Finding]]:
        checks.append(Check(function.__name__.replace("_", " "), level, function))
        return function

    return register


def examine(machine: Machine, level: int, checks: Sequence[Check] = CHECKS) -> list[dict[str, str | int]]:
    """Run the checks up to a level and return their findings as rows."""
    rows: list[dict[str, str | int]] = []
    for item in sorted(checks, key=lambda item: item.level):
        if item.level <= level:
            rows += [{"check": item.name, "level": item.level, **asdict(finding)} for finding in item.run(machine)]
    return rows
