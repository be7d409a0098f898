"""The fault bank of lab 06: wrong ways to share the query tiles of all heads among programs.

A fault that has variants is a list of plans: who visits which tile, in which order. What a kernel with that plan gives
follows from the plan alone: rows that nobody computes, rows computed again, and when the last program ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from flashkit.exercises import forward_faults
from flashkit.exercises.contract import Fault, chosen
from flashkit.exercises.forward_faults import Variant
from reference.schedule import deal
from reference.traffic import Shape

Place = tuple[int, int, int]  # query tile, batch, head
Lists = list[list[Place]]


@dataclass(frozen=True)
class Job:
    """What is to be shared: the query tiles of ``shape``, on ``sms`` multiprocessors."""

    shape: Shape
    sms: int

    @property
    def t(self) -> int:
        """Query tiles of a head."""
        return self.shape.query_tiles

    @property
    def tiles(self) -> int:
        return self.t * self.shape.heads

    def place(self, i: int, head: int) -> Place:
        """Tile i of a head that is counted over the batch."""
        return i, head // self.shape.H_q, head % self.shape.H_q


@dataclass(frozen=True)
class Plan:
    """lists(job): for each program what it visits, in order; ``whole``: it walks all keys whatever the mask hides.

    attention: the mistake of the visits themselves, where the plan is right.
    stored: (batch, head) -> the batch and head of o where a visit of theirs stores.
    """

    lists: Callable[[Job], Lists]
    whole: bool = False
    attention: Variant | None = None
    stored: Callable[[int, int], tuple[int, int]] = lambda b, h: (b, h)


# ---- orders: every tile once --------------------------------------------------------------------------------


def head_by_head(job: Job) -> list[Place]:
    return [job.place(i, head) for head in range(job.shape.heads) for i in range(job.t)]


def tile_by_tile(job: Job) -> list[Place]:
    return [job.place(i, head) for i in range(job.t) for head in range(job.shape.heads)]


def from_the_end(job: Job) -> list[Place]:
    """Longest first within a head, but one head after the other."""
    return [job.place(i, head) for head in range(job.shape.heads) for i in reversed(range(job.t))]


def batch_by_batch(job: Job) -> list[Place]:
    s = job.shape
    return [(i, b, h) for b in range(s.B) for i in range(job.t) for h in range(s.H_q)]


def longest_first(job: Job) -> list[Place]:
    return [job.place(i, head) for i in reversed(range(job.t)) for head in range(job.shape.heads)]


ASCENDING = (head_by_head, tile_by_tile)
NAIVE = (*ASCENDING, from_the_end, batch_by_batch)


# ---- plans ----------------------------------------------------------------------------------------------------


def alone(order: Callable[[Job], list[Place]]) -> Plan:
    """A program a tile, in this order; so it goes with a counter, too, from which free programs take the next tile."""
    return Plan(lambda job: [[place] for place in order(job)])


def dealt(order: Callable[[Job], list[Place]], how: str) -> Plan:
    return Plan(lambda job: deal(order(job), min(job.sms, job.tiles), how))


def to_programs(order: Callable[[Job], list[Place]], programs: Callable[[Job], int]) -> Plan:
    """Dealt in strides to another number of programs."""
    return Plan(lambda job: deal(order(job), max(1, programs(job))))


TOO_MANY = (
    *(lambda job, n=n: n * job.sms for n in (2, 3, 4)),
    *(lambda job, n=n: min(n * job.sms, job.tiles) for n in (2, 3, 4)),
)
TOO_FEW = (
    lambda job: min(job.sms, job.shape.heads),
    lambda job: min(job.sms, job.shape.H_q),
    lambda job: min(job.sms, job.t),
    lambda job: min(job.sms // 2, job.tiles),
    lambda job: job.sms // 2,
    lambda job: min(job.sms - 1, job.tiles),
    lambda job: job.sms - 1,
    lambda job: 1,
)


def either_way(order: Callable[[Job], list[Place]]) -> tuple[Plan, ...]:
    """The plans of a kernel whose programs find their tile like this: a program a tile, or dealt out."""
    return (alone(order), *(dealt(order, how) for how in ("stride", "snake", "chunks")))


def heads(lists: Callable[[Job, Sequence[list[Place]]], Lists]) -> Plan:
    """A plan made of whole heads, each a list of its tiles."""
    return Plan(lambda job: lists(job, [[job.place(i, head) for i in range(job.t)] for head in range(job.shape.heads)]))


def _joined(parts: Iterable[list[Place]]) -> list[Place]:
    return [place for part in parts for place in part]


def _batches(job: Job, whole: Sequence[list[Place]]) -> Lists:
    H = job.shape.H_q
    return [_joined(whole[b * H : (b + 1) * H]) for b in range(job.shape.B)]


HEADS_ONLY = (
    heads(lambda job, whole: list(whole)),
    heads(lambda job, whole: [_joined(whole[p :: job.sms]) for p in range(min(job.sms, len(whole)))]),
    heads(_batches),
)


def _rest(job: Job, order: list[Place], at: int) -> Lists:
    """Equal shares rounded down; program ``at`` (0 or -1) takes what is left besides."""
    programs = min(job.sms, job.tiles)
    share = len(order) // programs
    cuts = [p * share for p in range(programs + 1)]
    if at == 0:
        left = len(order) - cuts[-1]
        cuts = [0, *(cut + left for cut in cuts[1:])]
    else:
        cuts[-1] = len(order)
    return [order[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]


def again(order: Callable[[Job], list[Place]]) -> tuple[Plan, ...]:
    """Ways to visit a tile twice: chunks that overlap, a stride that is one short, every program all tiles, ..."""

    def overlapping(job: Job) -> Lists:
        places, size = order(job), -(-job.tiles // min(job.sms, job.tiles))
        return [places[p * size : (p + 1) * size + 1] for p in range(min(job.sms, job.tiles))]

    def short_stride(job: Job) -> Lists:
        places, programs = order(job), min(job.sms, job.tiles)
        return [places[p :: max(1, programs - 1)] for p in range(programs)]

    def everything(job: Job) -> Lists:
        return [order(job) for _ in range(min(job.sms, job.tiles))]

    def to_the_end(job: Job) -> Lists:
        return [order(job)[p:] for p in range(min(job.sms, job.tiles))]

    def more(times: Callable[[list[Place]], list[Place]]) -> Plan:
        return Plan(lambda job: [times(own) for own in deal(order(job), min(job.sms, job.tiles))])

    return (
        Plan(overlapping), Plan(short_stride), Plan(everything), Plan(to_the_end),
        more(lambda own: own + own[-1:]), more(lambda own: own[:1] + own), more(lambda own: own + own),
        more(lambda own: [place for place in own for _ in range(2)]),
        alone(lambda job: order(job) + order(job)[-1:]),
        alone(lambda job: _joined([place] * 2 for place in order(job))),
        alone(lambda job: order(job) + order(job)),
    )  # fmt: skip


def without(order: Callable[[Job], list[Place]], lost: Callable[[Place, Job], bool]) -> tuple[Plan, ...]:
    return either_way(lambda job: [place for place in order(job) if not lost(place, job)])


def shifted(order: Callable[[Job], list[Place]]) -> tuple[Plan, ...]:
    """Tiles counted from 1: tile 0 is lost, and one is walked that does not exist."""
    return either_way(lambda job: [(i + 1, b, h) for i, b, h in order(job)])


LOST = (
    lambda place, job: place[0] == 0,
    lambda place, job: place[0] == job.t - 1,
    lambda place, job: place == job.place(job.t - 1, job.shape.heads - 1),
    lambda place, job: place == job.place(0, 0),
    lambda place, job: place == job.place(0, job.shape.heads - 1),
)


def split(decode: Callable[[int, Job], Place]) -> tuple[Plan, ...]:
    """Programs that find tile, batch and head of number n like this."""
    return either_way(lambda job: [decode(n, job) for n in range(job.tiles)])


def mirrored(decode: Callable[[int, Job], tuple[int, int]], place=Job.place) -> tuple[Plan, ...]:
    """The same for a split into (tile, head), with tiles counted from the first or from the last."""
    up = split(lambda n, job: place(job, *decode(n, job)))
    return up + split(lambda n, job: place(job, job.t - 1 - decode(n, job)[0], decode(n, job)[1]))


def confused(of: Callable[[int, Shape], tuple[int, int]]) -> tuple[Plan, ...]:
    """A right split into tile and head, but the head is then split wrongly into batch and head."""
    place = lambda job, i, head: (i, *of(head, job.shape))  # noqa: E731
    return mirrored(lambda n, job: (n % job.t, n // job.t), place) + mirrored(
        lambda n, job: (n // job.shape.heads, n % job.shape.heads), place
    )


WRONG_SPLITS = (
    *mirrored(lambda n, job: (n // job.t, n % job.t)),
    *mirrored(lambda n, job: (n % job.shape.heads, n // job.shape.heads)),
    *mirrored(lambda n, job: (n % job.t, n % job.shape.heads)),
    *mirrored(lambda n, job: (n // job.shape.heads, n // job.t)),
    *mirrored(lambda n, job: (n // job.t, n % job.shape.heads)),
    *confused(lambda head, s: (head // s.B, head % s.B)),
    *confused(lambda head, s: (head % s.B, head % s.H_q)),
    *confused(lambda head, s: (head // s.H_q, head)),
)

# ---- the bank ---------------------------------------------------------------------------------------------------

FAULTS = (
    Fault(
        "heads-only-grid",
        "work is shared by heads only: one program walks all query tiles of a head",
        "With 8 heads on 132 multiprocessors 124 of them are idle. What else is independent?",
        HEADS_ONLY,
    ),
    Fault(
        "not-persistent",
        "more programs are launched than there are multiprocessors, one a tile",
        "A persistent kernel launches at most `sms` programs, and each loops over its tiles.",
        (alone(head_by_head), *(to_programs(head_by_head, n) for n in TOO_MANY)),
    ),
    Fault(
        "too-few-programs",
        "fewer programs are launched than there is work and room for",
        "As many as there are multiprocessors, unless there are fewer tiles.",
        tuple(to_programs(head_by_head, n) for n in TOO_FEW),
    ),
    Fault(
        "uneven-share",
        "the tiles are not shared evenly: one program gets what is left over",
        "No program should have more than one tile more than another.",
        tuple(Plan(lambda job, o=o, at=at: _rest(job, o(job), at)) for o in ASCENDING for at in (0, -1)),
    ),
    Fault(
        "order-naive",
        "the causal tiles start in an order that leaves long ones for the end",
        "The last query tile of a head walks the most key tiles. Which tiles should start first, in all heads?",
        tuple(alone(order) for order in NAIVE),
    ),
    Fault(
        "order-dealt",
        "each program's tiles are settled beforehand, and some programs get the long one of every round",
        "Dealt in strides, program 0 takes the longest of each round. Let programs take the next tile when they are "
        "free, or turn every second round.",
        tuple(dealt(o, how) for o in (*NAIVE, longest_first) for how in ("stride", "snake", "chunks")
              if (o, how) != (longest_first, "snake")),
    ),
    Fault(
        "tiles-past-diagonal",
        "every query tile walks all key tiles, also those that the mask hides",
        "The loop of query tile i may stop after the last key that its last row sees.",
        tuple(Plan(p.lists, True) for o in (longest_first, *ASCENDING) for p in either_way(o)),
    ),
    Fault(
        "tile-twice",
        "some tiles are visited twice",
        "Write down the numbers of the tiles that programs 0 and 1 take. Do they share one?",
        tuple(plan for order in (*ASCENDING, longest_first) for plan in again(order)),
    ),
    Fault(
        "tile-never",
        "some tiles are visited by nobody",
        "How many tiles are there in all? Does the last program reach the last of them?",
        (
            *(plan for lost in LOST for order in (*ASCENDING, longest_first) for plan in without(order, lost)),
            *(plan for order in (*ASCENDING, longest_first) for plan in shifted(order)),
        ),
    ),
    Fault(
        "wrong-split",
        "the number of a tile is split wrongly into query tile, batch and head",
        "With t tiles a head, number n is tile n % t of head n // t. What do you divide by, and what is the remainder?",
        WRONG_SPLITS,
    ),
    Fault(
        "query-tail-lost",
        "the last, partial query tile of a head is never computed",
        "How many tiles of block_q rows does it take to cover N_q rows?",
    ),
)  # fmt: skip


def of_the_visits(name: str, plan: Plan) -> Fault:
    """A mistake of lab 03's bank that a kernel with this plan, or another as good, may hold."""
    fault = forward_faults.FAULT[name]
    return replace(fault, variants=tuple(replace(plan, attention=variant) for variant in fault.variants))


IN_THE_FIRST = (lambda b, h: (0, h), lambda b, h: (b, 0))  # where o is stored without its batch, or without its head


def offset_forgotten(*plans: Plan) -> Fault:
    """Lab 03's fault of this name, and the same of o, whose values are those of the last visit: that is the plan's."""
    reads = of_the_visits("offset-forgotten", plans[0])
    writes = []
    for axis, stored in enumerate(IN_THE_FIRST):
        for plan in plans:
            writes += [replace(plan, stored=stored), replace(plan, stored=stored, attention=Variant(first=("q", axis)))]
        writes.append(replace(plans[0], stored=stored, attention=Variant(first=("qkv", axis))))
    return replace(reads, variants=(*reads.variants, *writes))


def bank(*names: str) -> tuple[Fault, ...]:
    """The named faults, in the bank's order; KeyError for an unknown name."""
    return chosen(FAULTS, names)
