# SPDX-License-Identifier: MIT
"""The result of tuning: a table, a plot, and plain data."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rocpy._messages.distribution import install_command
from rocpy._messages.html import table
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.problem import Problem
from rocpy.errors import UnsupportedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Trial", "TuningReport"]


@dataclass(frozen=True, slots=True)
class Trial:
    """The measurement of one algorithm.

    Parameters
    ----------
    algorithm
        The algorithm, with the median of its times as ``elapsed_ms``; ``None`` if it was not measured.
    warm_ms
        Median time with warm caches, in milliseconds.
    spread
        Half the interquartile range of the times with cold caches, relative to their median.
    trials
        Number of trials.
    dropped
        Why its measurement was stopped; empty if it ran to the end.
    """

    algorithm: Algorithm
    warm_ms: float | None
    spread: float
    trials: int
    dropped: str


@dataclass(frozen=True)
class TuningReport:
    """The result of ``Matmul.autotune``; its ``str`` is a table.

    Parameters
    ----------
    problem
        The problem that was measured.
    trials
        One entry per algorithm: the chosen one first, then by time.
    decided
        Whether there were enough trials to decide; otherwise the heuristic's first choice is kept and nothing is
        stored.
    reason
        The reason for the choice.
    gain
        Speed relative to the heuristic's first choice; 1 if that one is kept.
    elapsed_ms
        Duration of the tuning, in milliseconds.
    stored
        The file that stores the choice; ``""`` if it is in memory only.
    source
        ``"measured"``, or ``"tuned"`` if an earlier measurement was used.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> with rocpy.Matmul(np.ones((64, 64)), np.ones((64, 64))) as mm:
    ...     report = mm.autotune(budget_ms=50)
    >>> report.best == mm.algorithms[0], report.gain >= 1
    (True, True)
    """

    problem: Problem
    trials: tuple[Trial, ...]
    decided: bool
    reason: str
    gain: float
    elapsed_ms: float
    stored: str = ""
    source: str = "measured"

    @property
    def best(self) -> Algorithm:
        """The chosen algorithm."""
        return self.trials[0].algorithm

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, ready for JSON."""
        return {**asdict(self), "trials": [asdict(trial) for trial in self.trials]}

    def _rows(self) -> list[tuple[str, ...]]:
        """Return the names of the columns, and a row an algorithm."""
        rows: list[tuple[str, ...]] = [("", "algorithm", "cold ms", "warm ms", "spread", "trials", "")]
        for rank, trial in enumerate(self.trials):
            algorithm = trial.algorithm
            rows.append(
                (
                    "*" if rank == 0 else "",
                    f"{algorithm.name or 'unnamed'} #{algorithm.id}" + (" (heuristic)" if algorithm.rank == 0 else ""),
                    _time(algorithm.elapsed_ms),
                    _time(trial.warm_ms),
                    f"{trial.spread:.1%}" if trial.trials else "",
                    str(trial.trials or ""),
                    trial.dropped,
                )
            )
        return rows

    def _verdict(self) -> str:
        times = f"{self.gain:.2f} times the speed of the heuristic's first choice"
        return f"{times}: {self.reason}; {self.elapsed_ms:.0f} ms"

    def __repr__(self) -> str:
        """Return problem, choice and gain on one line."""
        return f"<TuningReport of {self.problem}: {self.best}, {self.gain:.2f} times the heuristic's first choice>"

    def _repr_html_(self) -> str:
        columns, *rows = self._rows()
        return table(f"{self.problem}; {self._verdict()}", columns, rows)

    def __str__(self) -> str:
        """Return a table, one line an algorithm."""
        rows = self._rows()
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [str(self.problem)]
        for row in rows:
            cells = [
                cell.ljust(width) if column in (0, 1, 6) else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        lines.append(self._verdict())
        return "\n".join(lines)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw the times of the algorithms as bars from zero; a star marks the chosen one.

        Parameters
        ----------
        path
            File to write, in any format that matplotlib supports; by default none is written.

        Returns
        -------
        matplotlib.figure.Figure
            The drawing.

        Raises
        ------
        UnsupportedError
            If matplotlib is not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise UnsupportedError(f"plot() needs matplotlib: {install_command('plot')}") from None
        shown = [trial for trial in self.trials if trial.algorithm.elapsed_ms is not None]
        figure = Figure(figsize=(8, 1.2 + 0.3 * len(shown)), layout="constrained")
        axes = figure.subplots()
        labels = [
            f"{'* ' if trial is self.trials[0] else ''}{trial.algorithm.name or 'unnamed'} #{trial.algorithm.id}"
            for trial in shown
        ]
        colours = ["tab:red" if trial.algorithm.rank == 0 else "tab:gray" for trial in shown]
        axes.barh(labels, [trial.algorithm.elapsed_ms or 0.0 for trial in shown], color=colours)
        axes.plot([trial.warm_ms or 0.0 for trial in shown], labels, "k|", markersize=8)
        axes.invert_yaxis()
        axes.set_xlim(left=0.0)
        axes.set_xlabel("milliseconds; bar: cold caches, mark: warm; red: the heuristic's first choice; *: the chosen")
        axes.set_title(str(self.problem), fontsize=9)
        if path is not None:
            figure.savefig(path)
        return figure


def _time(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
