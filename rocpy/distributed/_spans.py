# SPDX-License-Identifier: MIT
"""When products and collectives ran, measured by events on their streams, to show that they overlap."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rocpy._messages.html import table
from rocpy.runtime.event import Event
from rocpy.runtime.stream import Stream

__all__ = ["Span", "Spans", "current_spans", "overlap_trace"]

_open = threading.local()


@dataclass(frozen=True)
class Span:
    """One operation on a stream.

    Attributes
    ----------
    kind
        ``"product"`` or ``"collective"``.
    chunk
        The chunk that it processes.
    begin_ms, end_ms
        Times since the first operation of the call, in milliseconds, measured by the device.

    Examples
    --------
    >>> from rocpy.distributed import Span
    >>> Span("product", 1, 0.0, 2.0).overlaps(Span("collective", 0, 1.5, 3.0))
    True
    """

    kind: str
    chunk: int
    begin_ms: float
    end_ms: float

    def overlaps(self, other: Span) -> bool:
        """Whether the two run at the same time at some point."""
        return self.begin_ms < other.end_ms and other.begin_ms < self.end_ms


class Spans:
    """The result of `overlap_trace`: a sequence of :class:`Span`, complete when the calls have finished."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, int, Event, Event]] = []

    @contextmanager
    def mark(self, stream: Stream, kind: str, chunk: int) -> Iterator[None]:
        """Mark on a stream where an operation begins and ends."""
        begin, end = stream.record(Event(device=stream.device_index)), Event(device=stream.device_index)
        yield
        self._marks.append((kind, chunk, begin, stream.record(end)))

    def is_done(self, kind: str, chunk: int) -> bool:
        """Whether an operation has been given to its stream and is through."""
        return any((kind, chunk) == mark[:2] and mark[3].done for mark in self._marks)

    def __iter__(self) -> Iterator[Span]:
        first = self._marks[0][2] if self._marks else None
        for kind, chunk, begin, end in self._marks:
            end.synchronize()
            if first is not None:
                yield Span(kind, chunk, first.elapsed_ms(begin), first.elapsed_ms(end))

    def __repr__(self) -> str:
        return f"<Spans: {len(self._marks)} operations>"

    def _repr_html_(self) -> str:
        rows = [(one.kind, one.chunk, f"{one.begin_ms:.3f}", f"{one.end_ms:.3f}") for one in self]
        return table("when products and collectives ran", ("", "chunk", "begin ms", "end ms"), rows)

    def overlapping(self) -> list[int]:
        """Return the chunks whose collective overlapped with the next chunk's product, or the reverse."""
        spans = {(span.kind, span.chunk): span for span in self}
        chunks = []
        for (kind, chunk), span in spans.items():
            after = spans.get(("product" if kind == "collective" else "collective", chunk + 1))
            if after is not None and span.overlaps(after):
                chunks.append(chunk)
        return sorted(set(chunks))


def current_spans() -> Spans | None:
    """Return what collects on this thread."""
    return getattr(_open, "spans", None)


@contextmanager
def overlap_trace() -> Iterator[Spans]:
    """Record when the products and collectives of this module's calls run, in this thread.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import distributed, rccl
    >>> x, weight = np.ones((8, 4), np.float32), np.ones((3, 4), np.float32)
    >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm, distributed.overlap_trace() as spans:
    ...     y = distributed.row_linear(x, weight, comm=comm, chunks=2)
    >>> sorted((span.kind, span.chunk) for span in spans)
    [('collective', 0), ('collective', 1), ('product', 0), ('product', 1)]
    """
    before = current_spans()
    _open.spans = spans = Spans()
    try:
        yield spans
    finally:
        _open.spans = before
