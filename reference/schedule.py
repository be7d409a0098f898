"""Scheduling: tiles of attention on a GPU's multiprocessors, and a tile's work split among the warps of a block.

A GPU starts the programs of a launch in order, each where a place becomes free first (list scheduling). A unit of time
is one score tile: one key tile walked by a query tile or, in the backward, one query tile walked by a key tile.
Sources: Graham 1969 (longest first is at most 4/3 of the best); Dao 2023 (FlashAttention-2), sections 3.2 and 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

from reference.traffic import Shape

EPSILON = 1e-9
ALL = -1  # the tile of a task that is all tiles of its head


@dataclass(frozen=True)
class Task:
    """What one program does: tile ``tile`` of head ``head`` (counted over the batch), in ``cost`` units of time."""

    head: int
    tile: int
    cost: float


@dataclass(frozen=True)
class Span:
    """A task as it ran: on place ``place`` from ``start`` to ``end``."""

    task: Task
    place: int
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """What ran where and when. A place is an SM, or one of the blocks that an SM holds at a time."""

    spans: tuple[Span, ...]
    places: int

    @property
    def makespan(self) -> float:
        """When the last task ends."""
        return max((span.end for span in self.spans), default=0.0)

    @property
    def busy(self) -> float:
        """Share of all places' time, until the makespan, in which they work: 0 to 1."""
        worked = sum(span.end - span.start for span in self.spans)
        return worked / (self.makespan * self.places) if self.spans else 0.0

    @property
    def idle(self) -> float:
        return 1.0 - self.busy

    def running(self, time: float) -> int:
        """How many places work at this time (a task works from its start up to, but not at, its end)."""
        return sum(span.start <= time + EPSILON < span.end for span in self.spans)


# ---- tasks ------------------------------------------------------------------------------------------------


def forward_tasks(s: Shape) -> list[Task]:
    """One task a query tile of a head, head by head from the first tile to the last; a causal tile is shorter."""
    return [Task(head, i, s.visited(i)) for head in range(s.heads) for i in range(s.query_tiles)]


def head_tasks(s: Shape) -> list[Task]:
    """One task a head, as the first FlashAttention launched it: all its query tiles."""
    cost = sum(s.visited(i) for i in range(s.query_tiles))
    return [Task(head, ALL, cost) for head in range(s.heads)]


def backward_tasks(s: Shape) -> list[Task]:
    """One task a key tile of a K/V head, which walks the query tiles that see it, of each query head of its group."""
    group, tasks = s.H_q // s.H_kv, []
    for head in range(s.B * s.H_kv):
        for j in range(s.key_tiles):
            first = max(0, j * s.block_k - s.offset) // s.block_q if s.causal else 0
            tasks.append(Task(head, j, group * max(0, s.query_tiles - first)))
    return tasks


def longest_first(tasks: Iterable[Task]) -> list[Task]:
    """The costliest first; equal ones stay in their order."""
    return sorted(tasks, key=lambda task: -task.cost)


def tile_by_tile(tasks: Iterable[Task]) -> list[Task]:
    """The first tile of every head, then the second of every head, and so on."""
    return sorted(tasks, key=lambda task: task.tile)


def grouped(tasks: Iterable[Task], heads: int) -> list[Task]:
    """``heads`` heads at a time, longest first within them: their K and V fit the L2 together (FlashAttention-4)."""
    return sorted(tasks, key=lambda task: (task.head // heads, -task.cost))


ORDERS: dict[str, Callable[[Iterable[Task]], list[Task]]] = {
    "head by head": list,
    "tile by tile": tile_by_tile,
    "longest first": longest_first,
}

# ---- time ---------------------------------------------------------------------------------------------------


def simulate(tasks: Iterable[Task], places: int) -> Timeline:
    """Each task in turn starts where a place is free first, the lowest-numbered of these. ValueError without places."""
    if places < 1:
        raise ValueError(f"there must be at least 1 place, but there are {places}")
    free, spans = [(0.0, place) for place in range(places)], []
    heapify(free)
    for task in tasks:
        start, place = free[0]
        spans.append(Span(task, place, start, start + task.cost))
        heapreplace(free, (start + task.cost, place))
    return Timeline(tuple(spans), places)


def run_lists(lists: Sequence[Sequence[Task]], places: int) -> Timeline:
    """Programs that each hold a list of tasks, settled before the launch; more programs than places wait their turn."""
    programs = simulate([Task(0, n, sum(task.cost for task in tasks)) for n, tasks in enumerate(lists)], places)
    spans = []
    for program in programs.spans:
        time = program.start
        for task in lists[program.task.tile]:
            spans.append(Span(task, program.place, time, time + task.cost))
            time += task.cost
    return Timeline(tuple(spans), places)


def deal(tasks: Sequence[Task], programs: int, how: str = "stride") -> list[list[Task]]:
    """Tasks dealt to a fixed number of programs, as a persistent kernel may do it.

    "stride": program p takes tasks p, p + programs, ...; "snake": every other round in reverse; "chunks": consecutive
    tasks, the first programs one more where they do not divide evenly. ValueError for another word.
    """
    if how == "chunks":
        size, more = divmod(len(tasks), programs)
        starts = [p * size + min(p, more) for p in range(programs + 1)]
        return [list(tasks[a:b]) for a, b in zip(starts, starts[1:], strict=False)]
    if how not in ("stride", "snake"):
        raise ValueError(f'how must be "stride", "snake" or "chunks", but is {how!r}')
    lists: list[list[Task]] = [[] for _ in range(programs)]
    for n, task in enumerate(tasks):
        turn, p = divmod(n, programs)
        lists[programs - 1 - p if how == "snake" and turn % 2 else p].append(task)
    return lists


@dataclass(frozen=True)
class Waves:
    """Equal tasks on places: ``full`` waves that fill all, and ``left`` tasks in a last one (0: there is none)."""

    full: int
    left: int
    places: int

    @property
    def count(self) -> int:
        return self.full + (self.left > 0)

    @property
    def busy(self) -> float:
        """Share of the waves' places that hold a task."""
        return (self.full * self.places + self.left) / (self.count * self.places) if self.count else 0.0


def waves(tasks: int, places: int) -> Waves:
    return Waves(*divmod(tasks, places), places)


# ---- warps ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """What one key tile costs a block whose warps share the work in this way, in bytes of shared memory.

    operands     Q, K and V as the matrix units of all warps read them
    exchanged    what warps write for each other, and read
    barriers     at which all warps wait for each other
    accumulator  fp32 registers of a thread that hold its warp's part of O
    """

    name: str
    operands: int
    exchanged: int
    barriers: int
    accumulator: int

    @property
    def bytes(self) -> int:
        return self.operands + self.exchanged


def split_k(block_q: int, block_k: int, d: int, warps: int = 4, itemsize: int = 2) -> Split:
    """FlashAttention 1: each warp takes some keys, and all rows. Every row's parts must be joined.

    Row maxima and sums are written by each warp and read by all; the parts of O (fp32) are written by each and read
    once to be added. Every warp reads Q, the keys and values are read once.
    """
    statistics = 2 * warps * block_q * 4
    parts = warps * block_q * d * 4
    operands = (warps * block_q * d + 2 * block_k * d) * itemsize
    return Split("split-K", operands, statistics * (1 + warps) + 2 * parts, 2, block_q * d // 32)


def split_q(block_q: int, block_k: int, d: int, warps: int = 4, itemsize: int = 2) -> Split:
    """FlashAttention-2: each warp takes some rows, and all keys. Nothing is exchanged; every warp reads K and V."""
    return Split("split-Q", warps * 2 * block_k * d * itemsize, 0, 0, block_q // warps * d // 32)
