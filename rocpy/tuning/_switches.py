# SPDX-License-Identifier: MIT
"""Enabling and disabling tuning for a process, and the recorder of the problems that it computes."""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from rocpy._locks import hold_over_forks
from rocpy._messages.html import table
from rocpy._messages.pickling import refuse_pickling
from rocpy.blaslt.model.options import DEFAULT, Options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.selection import choice as _choice
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.errors import InvalidOperandError, InvalidProblemError

__all__ = ["Shapes", "disable", "enable", "record"]

FORMAT = "rocpy problems"
_LIMITS = "max_workspace_bytes"


_lock = threading.Lock()
hold_over_forks(_lock)
# Switches in the order in which they were made. One that was made for the rest of the process is forgotten at once.
_registered: list[weakref.ref[_Switch]] = []


class _Switch:
    """A mode of the process that takes effect when it is made; leaving it as a context brings the mode before back.

    Contexts of several threads may end in any order: one that another came after leaves it what to bring back.
    """

    _mode = _tuning_state.USE
    _previous_budget_ms: float | None = None

    def __init__(self, *budget_ms: float) -> None:
        with _lock:
            if budget_ms:
                self._previous_budget_ms = _set_budget_ms(*budget_ms)
            self._previous = _tuning_state.process_mode()
            _tuning_state.set_process_mode(self._mode)
            _registered.append(weakref.ref(self))

    def __repr__(self) -> str:
        return f"rocpy.tuning.{type(self).__name__}()"

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "switch tuning on or off in the other process itself")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with _lock:
            alive = [switch for switch in (reference() for reference in _registered) if switch is not None]
            if self not in alive:
                return
            later = alive[alive.index(self) + 1 :]
            _registered[:] = [weakref.ref(switch) for switch in alive if switch is not self]
            if later:
                later[0]._previous = self._previous
            else:
                _tuning_state.set_process_mode(self._previous)
            if self._previous_budget_ms is not None:
                heir = next((switch for switch in later if switch._previous_budget_ms is not None), None)
                if heir is None:
                    _set_budget_ms(self._previous_budget_ms)
                else:
                    heir._previous_budget_ms = self._previous_budget_ms


def _set_budget_ms(budget_ms: float) -> float:
    from rocpy.tuning._live import set_budget_ms  # most programs only look choices up

    return set_budget_ms(budget_ms)


class enable(_Switch):  # noqa: N801 (used like a function: `rocpy.tuning.enable()`)
    """Measure each problem of ``rocpy.matmul`` that has no stored choice, from now on, in all threads.

    Parameters
    ----------
    budget_ms
        Time limit of the trials of one problem, in milliseconds; see :meth:`rocpy.Matmul.autotune`.

    Notes
    -----
    As a context manager it applies to the block. Nothing is measured while a stream is captured into a graph, nor for
    products with ``options(reproducible=...)``. A choice changes which kernel runs, and with it the order of summation:
    results may differ in their last bits from those of the heuristic's choice, as they may between library versions.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> with rocpy.tuning.enable(budget_ms=20):
    ...     product = rocpy.matmul(np.ones((32, 32)), np.ones((32, 32)))
    >>> float(product[0, 0])
    32.0
    """

    _mode = _tuning_state.MEASURE

    def __init__(self, *, budget_ms: float = 200.0) -> None:
        super().__init__(budget_ms)
        self._budget_ms = budget_ms

    def __repr__(self) -> str:
        return f"rocpy.tuning.enable(budget_ms={self._budget_ms!r})"


class disable(_Switch):  # noqa: N801 (used like a function: `rocpy.tuning.disable()`)
    """Neither measure nor use what was measured, from now on, in all threads; as a context manager, for a block.

    Notes
    -----
    What a call asks for by itself is still done: ``matmul(..., autotune=True)`` and ``Matmul.autotune``.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> with rocpy.tuning.disable():
    ...     rocpy.explain(np.ones((32, 32)), np.ones((32, 32))).source
    'heuristic'
    """

    _mode = _tuning_state.OFF

    def __init__(self) -> None:
        super().__init__()


class Shapes(list[Problem]):
    """The problems that a program computed, each once, in the order of their first product.

    Attributes
    ----------
    workspace_limits
        The values of ``max_workspace_bytes`` with which a problem was computed; those that are not in it had the
        default.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.tuning.Shapes.from_json(rocpy.tuning.Shapes().to_json())
    []
    """

    def __init__(self, problems: Iterable[Problem] = ()) -> None:
        super().__init__(problems)
        self.workspace_limits: dict[Problem, list[int]] = {}

    def with_options(self) -> Iterator[tuple[Problem, Options]]:
        """Yield each problem with the options that its choice depends on, for each workspace limit that it had."""
        for problem in self:
            for limit in self.workspace_limits.get(problem, [DEFAULT.max_workspace_bytes]):
                yield problem, Options(max_workspace_bytes=limit)

    def _repr_html_(self) -> str:
        return table("problems", (), [(problem,) for problem in self])

    def to_json(self) -> str:
        """Return the problems as a JSON document, which ``rocpy tune run`` accepts.

        Raises
        ------
        InvalidOperandError
            If an item is no problem.
        """
        for number, problem in enumerate(self):
            if not isinstance(problem, Problem):
                raise InvalidOperandError(
                    f"item {number}: got {type(problem).__name__}, expected a rocpy.blaslt.Problem"
                )
        return json.dumps({"format": FORMAT, "problems": [self._facts(problem) for problem in self]}, indent=1)

    def _facts(self, problem: Problem) -> dict[str, Any]:
        limits = self.workspace_limits.get(problem)
        return json.loads(problem.to_json()) | ({} if limits is None else {_LIMITS: limits})

    @classmethod
    def from_json(cls, text: str) -> Shapes:
        """Return the problems of a document; each is checked again.

        Raises
        ------
        InvalidProblemError
            If it is not such a document, or one of its problems is invalid.
        """
        try:
            document = json.loads(text)
            shapes = cls()
            for facts in document["problems"] if isinstance(document, dict) else document:
                problem = Problem.from_json(json.dumps(facts))
                shapes.append(problem)
                if _LIMITS in facts:
                    limits = facts[_LIMITS]
                    shapes.workspace_limits[problem] = [
                        Options(max_workspace_bytes=x).max_workspace_bytes for x in limits
                    ]
            return shapes
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            if isinstance(error, InvalidProblemError):
                raise
            raise InvalidProblemError(
                f"not a document of problems, as rocpy.tuning.record() writes it: {type(error).__name__}: {error}"
            ) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the document to a file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Shapes:
        """Return the problems of a file.

        Raises
        ------
        InvalidProblemError
            If it holds no such document.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InvalidProblemError(
                f"not a document of problems, as rocpy.tuning.record() writes it: {path}: {error}"
            ) from None
        return cls.from_json(text)


class record:  # noqa: N801 (used like a function: `with rocpy.tuning.record() as shapes:`)
    """Record the problems that the process plans inside a block, in all threads.

    A product whose plan is already cached is planned once more, so that it is recorded; after that, recording costs
    nothing. :func:`rocpy.explain` plans too, and so may a call that is refused afterwards.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> with rocpy.tuning.record() as shapes:
    ...     for _ in range(3):
    ...         _ = rocpy.matmul(np.ones((2, 3)), np.ones((3, 4)))
    >>> [(problem.m, problem.n, problem.k) for problem in shapes]
    [(2, 4, 3)]
    """

    def __init__(self) -> None:
        self._shapes = Shapes()
        self._seen: dict[Problem, list[int]] = {}
        self._lock = threading.Lock()
        self._blocks = 0

    def _add(self, problem: Problem, options: Options) -> None:
        limit = options.max_workspace_bytes
        with self._lock:
            if problem not in self._seen:
                self._seen[problem] = []
                self._shapes.append(problem)
            limits = self._seen[problem]
            if limit not in limits:
                limits.append(limit)
            if limits != [DEFAULT.max_workspace_bytes]:
                self._shapes.workspace_limits[problem] = limits

    def __repr__(self) -> str:
        return f"<rocpy.tuning.record of {len(self._shapes)} problems>"

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "pickle the Shapes that `with` returns")

    def __enter__(self) -> Shapes:
        with self._lock:
            self._blocks += 1
        _choice.add_recorder(self._add)
        return self._shapes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            if not self._blocks:
                raise InvalidProblemError(f"{self!r}: there is no with block of it to leave")
            self._blocks -= 1
        _choice.remove_recorder(self._add)
