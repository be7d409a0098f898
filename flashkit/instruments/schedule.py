"""Which program did which tile, in what order and after how many bytes of K: read from the meter's events.

A visit ends when a program stores rows of the output. What it loaded of K since its last visit is the visit's work,
whoever wrote the kernel and however it decodes its program number.
"""

from __future__ import annotations

import numpy as np

from flashkit.instruments.record import Event, Record

COLUMNS = ("launch", "program", "batch", "head", "row", "rows", "bytes", "asked", "launched")
NOWHERE = -1  # batch, head and row of work after a program's last store


def schedule(record: Record, output: str = "o", keys: str = "k") -> np.ndarray:
    """Visits in the order in which they ended, ``(visits, 9)`` float64; columns as :data:`COLUMNS` names them.

    program counts in launch order, x fastest. row is the visit's first row and rows how many it stored of the tensor
    ``output``, whose shape is (B, H, N, d); bytes were loaded of ``keys``. asked is 1 if the program took a number
    from an atomic counter before the visit: another run would give the tile to another program.
    """
    visits: list[list[float]] = []
    work: dict[
        tuple[int, int], list
    ] = {}  # (launch, program) -> bytes, asked, its last visit and that one's first column
    for event in record.events:
        own = work.setdefault((event.launch, _number(event, record)), [0, 0, None, 0])
        if event.tensor == output and event.access == "store":
            _end(visits, own, event, _number(event, record))
        elif event.tensor == keys and event.access == "load":
            own[0] += event.bytes
        elif event.access == "atomic" and event.tensor != output:
            own[1] = 1
    for (launch, program), (loaded, *_) in work.items():
        if loaded:
            visits.append([launch, program, NOWHERE, NOWHERE, NOWHERE, 0, loaded, 0])
    launched = [float(np.prod(launch.grid or (0,))) for launch in record.launches]
    rows = [[*visit, launched[int(visit[0])]] for visit in visits]
    return np.array(rows, np.float64).reshape(-1, len(COLUMNS))


def _end(visits: list[list[float]], own: list, event: Event, program: int) -> None:
    """A visit of its own, or other columns of the one before: a store of the same rows with no work between."""
    loaded, asked, last, first_column = own
    batch, head, row, column, *_ = (*event.first, 0, 0, 0)[:4] if len(event.first) > 2 else (0, 0, *event.first, 0)
    place = [batch, head, row, event.highest_row - event.lowest_row + 1]
    if last is not None and not loaded and last[2:6] == place and column != first_column:
        return
    own[:] = [0, 0, [event.launch, program, *place, loaded, asked], column]
    visits.append(own[2])


def _number(event: Event, record: Record) -> int:
    x, y, z = event.program
    wide, high, _ = record.launches[event.launch].grid or (1, 1, 1)
    return x + wide * (y + high * z)
