"""Which program did which tile, in what order and after how many bytes of K: read from the meter's events.

A visit ends when a program stores rows of the output. What it loaded of K since its last visit is the visit's work,
whoever wrote the kernel and however it decodes its program number.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from flashkit.instruments.record import Event, Record

COLUMNS = ("launch", "program", "batch", "head", "row", "rows", "bytes", "asked", "launched")
NOWHERE = -1  # batch, head and row of work after a program's last store


class _Part(NamedTuple):
    """Rows of one head that a store went to, from its first to its last, and the first column."""

    batch: int
    head: int
    row: int
    rows: int
    column: int

    def meets(self, other: _Part) -> bool:
        same = self[:2] == other[:2]
        return same and self.row < other.row + other.rows and other.row < self.row + self.rows


@dataclass
class _Program:
    """What a program did since its last store, and where it stored since it last read keys.

    worked: it read something, or took a number. The output does not count: a kernel may correct what it has stored.
    """

    loaded: int = 0
    asked: bool = False
    worked: bool = False
    parts: list[_Part] = field(default_factory=list)


def schedule(record: Record, output: str = "o", keys: str = "k") -> np.ndarray:
    """Visits in the order in which they ended, ``(visits, 9)`` float64; columns as :data:`COLUMNS` names them.

    program counts in launch order, x fastest. row is the visit's first row and rows how many it stored of the tensor
    ``output``, whose shape is (B, H, N, d); bytes were loaded of ``keys``. asked is 1 if the program took a number
    from an atomic counter before the visit: another run would give the tile to another program.
    """
    visits: list[list[float]] = []
    work: defaultdict[tuple[int, int], _Program] = defaultdict(_Program)  # by launch and program
    for event in record.events:
        own = work[event.launch, _number(event, record)]
        if event.tensor == output:
            if event.access == "store":
                _end(visits, own, event, _number(event, record))
        elif event.access != "store":
            own.worked = True
            own.loaded += event.bytes if event.tensor == keys and event.access == "load" else 0
            own.asked |= event.access == "atomic"
    for (launch, program), own in work.items():
        if own.loaded:
            visits.append([launch, program, NOWHERE, NOWHERE, NOWHERE, 0, own.loaded, 0])
    launched = [float(np.prod(launch.grid or (0,))) for launch in record.launches]
    rows = [[*visit, launched[int(visit[0])]] for visit in visits]
    return np.array(rows, np.float64).reshape(-1, len(COLUMNS))


def _end(visits: list[list[float]], own: _Program, event: Event, program: int) -> None:
    """A visit of its own, or a part of the one before: the same rows with no work between, or other columns of them."""
    batch, head, row, column, *_ = (*event.first, 0, 0, 0)[:4] if len(event.first) > 2 else (0, 0, *event.first, 0)
    part = _Part(batch, head, row, event.highest_row - event.lowest_row + 1, column)
    met = [] if own.loaded else [other for other in own.parts if other.meets(part)]
    again = own.worked and any(other.column == column for other in met)
    own.parts = [part] if own.loaded or again else [*own.parts, part]
    if not met or again:
        visits.append([event.launch, program, *part[:4], own.loaded, int(own.asked)])
        own.loaded, own.asked = 0, False
    own.worked = False


def _number(event: Event, record: Record) -> int:
    x, y, z = event.program
    wide, high, _ = record.launches[event.launch].grid or (1, 1, 1)
    return x + wide * (y + high * z)
