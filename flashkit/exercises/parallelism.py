"""Lab 06: FA2 parallelism. Exercises 06.grid, 06.order, 06.persistent and 06.causal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from flashkit.exercises import flash_forward, timed
from flashkit.exercises.contract import NUMBER, Case, Exercise, Fault, Outputs
from flashkit.exercises.flash_forward import attention_case, draw_like, layouts_of
from flashkit.exercises.inputs import ITEMSIZE, attention_inputs
from flashkit.exercises.parallelism_faults import (
    Job,
    Plan,
    alone,
    bank,
    dealt,
    head_by_head,
    longest_first,
    of_the_visits,
    offset_forgotten,
)
from flashkit.exercises.timed import ledger_shape
from flashkit.instruments.schedule import COLUMNS
from flashkit.runtime.call import Argument, Call, Returned
from reference import schedule
from reference.schedule import Task
from reference.traffic import Shape

# ---- (a) numbers and orders, without a kernel ---------------------------------------------------------------


def _grid(B, H_q, N_q, block_q, sms) -> tuple[int, int, float]:
    programs = B * H_q * -(-N_q // block_q)
    waves = schedule.waves(programs, sms)
    return programs, waves.count, waves.busy


def _grid_wrong(programs=None, waves=None, busy=None) -> Callable:
    """An answer with this mistake; what is not named follows from the wrong number of programs as it should."""

    def answer(B, H_q, N_q, block_q, sms):
        s = {"B": B, "H_q": H_q, "N_q": N_q, "block_q": block_q, "sms": sms}
        n = programs(**s) if programs else _grid(**s)[0]
        right = schedule.waves(n, sms)
        count = waves(n, sms) if waves else right.count
        share = busy(n, sms, count) if busy else n / (count * sms) if count else 0.0
        return n, count, share

    return answer


def _numbers(values: tuple, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {name: np.array(float(value)) for name, value in zip(names, values, strict=True)}


def _other_sizes(cases: tuple[Case, ...], seed: int, name: str, most: int) -> tuple[Case, ...]:
    rng = np.random.default_rng(seed)
    return tuple(replace(c, sizes={**c.sizes, name: c.sizes[name] + int(rng.integers(1, most))}) for c in cases)


GRID_NAMES = ("programs", "waves", "busy")
GRID_CASES = (
    Case("the chapter's example", {"B": 1, "H_q": 8, "N_q": 4096, "block_q": 128, "sms": 132}),
    Case("a tail, and a batch", {"B": 3, "H_q": 5, "N_q": 1000, "block_q": 128, "sms": 108}),
    Case("fewer programs than multiprocessors", {"B": 1, "H_q": 4, "N_q": 200, "block_q": 64, "sms": 132}),
    Case("full waves", {"B": 2, "H_q": 8, "N_q": 512, "block_q": 64, "sms": 64}),
)
GRID = Exercise(
    id="06.grid",
    call=lambda case: Call({}, dict(case.sizes), tuple(Returned(name, (), "number") for name in GRID_NAMES)),
    oracle=lambda case: _numbers(_grid(**case.sizes), GRID_NAMES),
    honest=lambda case: [],
    wrong=lambda case, variant: _numbers(variant(**case.sizes), GRID_NAMES),
    cases=tuple(replace(case, dtype="number") for case in GRID_CASES),
    draw=lambda seed: _other_sizes(tuple(replace(c, dtype="number") for c in GRID_CASES), seed, "N_q", 60),
    faults=(
        Fault("heads-only-grid", "programs are counted by heads only", "Query tiles are independent too.",
              (_grid_wrong(lambda B, H_q, N_q, block_q, sms: B * H_q), _grid_wrong(lambda B, H_q, **_: H_q))),
        Fault("batch-forgotten", "the batch is not counted", "Each sequence of the batch has heads of its own.",
              (_grid_wrong(lambda B, H_q, N_q, block_q, sms: H_q * -(-N_q // block_q)),)),
        Fault("query-tail-lost", "the last, partial query tile of a head is not counted",
              "How many tiles of block_q rows does it take to cover N_q rows?",
              (_grid_wrong(lambda B, H_q, N_q, block_q, sms: B * H_q * (N_q // block_q)),
               _grid_wrong(lambda B, H_q, N_q, block_q, sms: B * H_q * max(1, N_q // block_q)))),
        Fault("tail-over-all-heads", "the rows of all heads are cut into tiles as if they were one sequence",
              "A tile belongs to one head: round up for each head.",
              (_grid_wrong(lambda B, H_q, N_q, block_q, sms: -(-B * H_q * N_q // block_q)),)),
        Fault("last-wave-lost", "the last wave is not counted", "A wave that is not full takes its time too: round up.",
              (_grid_wrong(waves=lambda n, sms: n // sms), _grid_wrong(waves=lambda n, sms: n / sms),
               _grid_wrong(waves=lambda n, sms: max(1, n // sms)),
               _grid_wrong(waves=lambda n, sms: n // sms, busy=lambda n, sms, count: schedule.waves(n, sms).busy),
               _grid_wrong(waves=lambda n, sms: n // sms + 1))),
        Fault("busy-of-one-wave", "busy is not the share of all waves' places",
              "Programs over waves times multiprocessors.",
              (_grid_wrong(busy=lambda n, sms, count: (n % sms or sms) / sms),
               _grid_wrong(busy=lambda n, sms, count: min(1.0, n / sms)),
               _grid_wrong(busy=lambda n, sms, count: n / sms),
               _grid_wrong(busy=lambda n, sms, count: 100 * n / (count * sms)),
               _grid_wrong(busy=lambda n, sms, count: 1 - n / (count * sms)))),
    ),
    budget=lambda case: {},
    shares=NUMBER,
    title="Programs, waves, and how full they are",
    points=10,
    minutes=10,
    difficulty=1,
    signature="grid(B, H_q, N_q, block_q, sms) -> (programs, waves, busy)    # one program a query tile of a head",
    hints=(
        "A program a query tile, a head and a sequence of the batch. The last tile of a head may be partial.",
        "With one program a multiprocessor at a time, a wave is as many programs as there are multiprocessors.",
        "busy = programs / (waves * sms): 1 when the last wave is full.",
    ),
)  # fmt: skip


def _order_seen(case: Case, order: np.ndarray) -> dict[str, np.ndarray]:
    """What an order of (tile, head) gives: tiles that are missing, come again or do not exist, and the makespan."""
    t, heads = case.sizes["query_tiles"], case.sizes["heads"]
    pairs = [tuple(pair) for pair in np.asarray(order).reshape(-1, 2).tolist()]
    real = [(int(i), int(h)) for i, h in pairs if i in range(t) and h in range(heads)]
    ends = schedule.simulate([Task(h, i, i + 1) for i, h in real], case.options["sms"]).makespan
    values = (t * heads - len(set(real)), len(real) - len(set(real)), len(pairs) - len(real), ends)
    return _numbers(values, ORDER_NAMES)


ORDER_NAMES = ("missing", "repeated", "strange", "makespan")
ORDER_CASES = tuple(
    Case(why, {"query_tiles": t, "heads": heads}, {"sms": sms}, dtype="number")
    for why, t, heads, sms in (
        ("the chapter's example in tiles of one cost", 32, 8, 132),
        ("few heads", 7, 3, 5),
        ("one tile a head", 1, 6, 4),
        ("one head", 9, 1, 4),
    )
)
ORDER = Exercise(
    id="06.order",
    call=lambda case: Call({}, dict(case.sizes), (Returned("order", (-1, 2), "list"),)),
    oracle=lambda case: _order_seen(case, _longest(**case.sizes)),
    honest=lambda case: [],
    derive=lambda case, out: _order_seen(case, out["order"]) if "order" in out else out,
    at_most=("makespan",),
    wrong=lambda case, variant: _order_seen(case, variant(**case.sizes)),
    cases=ORDER_CASES,
    draw=lambda seed: _other_sizes(ORDER_CASES[:2], seed, "heads", 2) + _other_sizes(ORDER_CASES[2:], seed, "heads", 4),
    faults=(
        Fault("heads-only-grid", "the order has one entry a head", "Every query tile of a head is an entry of its own.",
              (lambda query_tiles, heads: [(0, h) for h in range(heads)],
                              lambda query_tiles, heads: [(query_tiles - 1, h) for h in range(heads)],
                              lambda query_tiles, heads: [(h, 0) for h in range(heads)])),
        Fault("order-naive", "long tiles are left for the end",
              "Tile i walks i + 1 key tiles. Which tiles should start first, in all heads?",
              (lambda query_tiles, heads: [(i, h) for h in range(heads) for i in range(query_tiles)],
                              lambda query_tiles, heads: [(i, h) for i in range(query_tiles) for h in range(heads)],
                              lambda query_tiles, heads: [(i, h) for h in range(heads)
                                                          for i in reversed(range(query_tiles))])),
        Fault("pair-swapped", "the pairs are (head, tile)", "The tile comes first.",
              (lambda query_tiles, heads: [(h, i) for i, h in _longest(query_tiles, heads)],
                              lambda query_tiles, heads: [(h, i) for h in range(heads) for i in range(query_tiles)],
                              lambda query_tiles, heads: [(h, i) for i in range(query_tiles) for h in range(heads)])),
        Fault("counted-from-one", "tiles or heads are counted from 1", "The first tile is tile 0.",
              (lambda query_tiles, heads: [(i + 1, h) for i, h in _longest(query_tiles, heads)],
                              lambda query_tiles, heads: [(i + 1, h + 1) for i, h in _longest(query_tiles, heads)],
                              lambda query_tiles, heads: [(i, h + 1) for i, h in _longest(query_tiles, heads)])),
        Fault("tile-never", "a tile of each head is missing", "range(n - 1, 0, -1) stops before 0.",
              (lambda query_tiles, heads: [x for x in _longest(query_tiles, heads) if x[0]],
                              lambda query_tiles, heads: [x for x in _longest(query_tiles, heads)
                                                          if x[0] < query_tiles - 1])),
        Fault("tile-twice", "a tile of each head comes twice", "Count the entries: query_tiles * heads of them.",
              (lambda query_tiles, heads: _longest(query_tiles, heads) + [(0, h) for h in range(heads)],
                              lambda query_tiles, heads: [(query_tiles - 1, h) for h in range(heads)]
                              + _longest(query_tiles, heads))),
    ),
    budget=lambda case: {},
    shares=NUMBER,
    title="Longest first",
    points=10,
    minutes=10,
    difficulty=2,
    signature="longest_first(query_tiles, heads) -> [(tile, head), ...]    # causal: tile i walks i + 1 key tiles",
    hints=(
        "Each pair of a tile and a head comes once: query_tiles * heads entries.",
        "The last tile of every head is the longest. Start with these.",
        "Two loops: over the tiles from the last to 0 outside, over the heads inside.",
    ),
)  # fmt: skip


def _longest(query_tiles: int, heads: int) -> list[tuple[int, int]]:
    return [(i, h) for i in reversed(range(query_tiles)) for h in range(heads)]


# ---- (b) and (c): kernels, judged by what the meter saw of their schedule ------------------------------------------


SLACK = 1.25


def units(shape: Shape, plan: Plan, i: int) -> int:
    """Key tiles that a visit of query tile i walks; one that does not exist walks as far as the mask lets it."""
    return shape.key_tiles if plan.whole else shape.visited(i)


def observed(case: Case, outputs: Outputs) -> dict[str, np.ndarray]:
    """o, and what its schedule amounts to: rows stored again, programs launched at a time, and the makespan."""
    if "schedule" not in outputs:
        return dict(outputs)
    visits = np.nan_to_num(outputs["schedule"], posinf=0, neginf=0).clip(-1, 2**31)
    column = {name: visits[:, n] for n, name in enumerate(COLUMNS)}
    walked = np.ceil(column["bytes"] / (case.sizes["d"] * ITEMSIZE[case.dtype]) / case.options["block_k"] - 1e-9)
    makespan, longest = 0.0, 0
    for launch in np.unique(column["launch"]):
        mine = column["launch"] == launch
        lists = _lists(column["program"][mine], walked[mine], column["asked"][mine])
        makespan += schedule.run_lists(lists, case.sizes["sms"]).makespan
        longest = max(longest, *map(len, lists))
    most = column["launched"][column["bytes"] > 0].max(initial=0)
    seen = _schedule(
        _stored_again(column, case.sizes["N_q"]), max(most, case.sizes["sms"]), walked.sum(), makespan, longest > 1
    )
    return {name: x for name, x in outputs.items() if name != "schedule"} | seen


def _schedule(repeated: float, programs: float, walked: float, makespan: float, settled: bool = True):
    """walked: key tiles of all visits together.

    settled: some program's tiles are several, and known before it starts. Never wrong, it tells mistakes apart.
    """
    names = ("repeated", "programs", "walked", "makespan", "settled")
    return _numbers((repeated, programs, walked, makespan, settled), names)


def _lists(program: np.ndarray, walked: np.ndarray, asked: np.ndarray) -> list[list[Task]]:
    """What is settled before it starts, in the order in which it starts.

    A program's visits belong together, but for those whose number came from a counter: another run gives them to
    whoever is free then, so each begins a list of its own.
    """
    lists: dict[tuple[int, int], list[Task]] = {}
    begun: Counter[int] = Counter()
    for p, cost, new in zip(program.astype(int), walked, asked, strict=True):
        begun[p] += bool(new)
        lists.setdefault((p, begun[p]), []).append(Task(0, 0, cost))
    by_number = sorted(lists.items(), key=lambda item: item[0][0]) if not asked.any() else lists.items()
    return [tasks for _, tasks in by_number]


def _stored_again(column: dict[str, np.ndarray], most: int) -> int:
    """Rows of o that were stored more than once, counted each time but the first; ``most`` rows a head.

    Zeros that were stored before any key was read are no visit of rows that see keys.
    """
    zeros, seen, again = set(), set(), 0
    names = ("batch", "head", "row", "rows", "bytes")
    for b, h, row, rows, keys in zip(*(column[name].astype(int) for name in names), strict=True):
        own = {(b, h, n) for n in range(row, row + min(rows, most))}
        again += len(own & (seen if keys > 0 else seen | zeros))
        (seen if keys > 0 else zeros).update(own)
    return again


def predicted(case: Case, plan: Plan) -> dict[str, np.ndarray]:
    """What a kernel with this plan gives; ``{"stopped": tensors}`` where it would leave a tensor."""
    shape, sms = ledger_shape(case), case.sizes["sms"]
    lists = plan.lists(Job(shape, sms))
    places = [place for own in lists for place in own]
    if any(b * shape.H_q + h >= shape.heads or (h >= shape.H_q and case.layout != "contiguous") for _, b, h in places):
        return {"stopped": ("q", "k", "v", "o")}
    o = flash_forward.wrong(case, plan.attention) if plan.attention else {"o": _attention(case)}
    if "stopped" in o:
        return o
    stored, visited = np.full(o["o"].shape, np.nan), np.zeros(o["o"].shape[:3], int)
    for i, b, h in places:
        if i < shape.query_tiles:
            place, rows = (b + h // shape.H_q, h % shape.H_q), slice(i * shape.block_q, (i + 1) * shape.block_q)
            stored[(*plan.stored(*place), rows)] = o["o"][(*place, rows)]
            visited[(*plan.stored(*place), rows)] += 1
    again = int((visited - 1).clip(0).sum())
    tasks = [[Task(0, i, units(shape, plan, i)) for i, _, _ in own] for own in lists]
    ends = schedule.run_lists(tasks, sms).makespan
    walked = sum(task.cost for own in tasks for task in own)
    return {
        "o": stored,
        **_schedule(again, max(len(lists), sms), walked, ends, max(map(len, lists)) > 1),
    }


@lru_cache(maxsize=64)  # naming a mistake asks for the same case's answer many times
def _attention(case: Case) -> np.ndarray:
    return flash_forward.oracle(case)["o"]


def bound(case: Case) -> float:
    """The longest makespan that counts as right: :data:`SLACK` times the least possible, or what longest-first takes.

    Equal tiles are shared as evenly as whole tiles allow. No schedule ends before the longest tile, nor before an even
    share of all the work.
    """
    job = Job(ledger_shape(case), case.sizes["sms"])
    tasks = schedule.forward_tasks(job.shape)
    if not job.shape.causal:
        return schedule.simulate(tasks, job.sms).makespan
    costs = [task.cost for task in tasks]
    least = max(sum(costs) / job.sms, max(costs))
    return max(SLACK * least, schedule.simulate(schedule.longest_first(tasks), job.sms).makespan)


def meter_says(case: Case, finding) -> str:
    """Rows that nobody stored, where their place leaves no doubt; the plans of the bank explain the rest."""
    if finding.kind != "unwritten" or len(finding.index) != 4:
        return ""
    if re.search(r": (\d+) of \1 elements", finding.detail):  # a copy or a cast of what the kernel stored
        return ""
    b, h, row, _ = finding.index
    in_tail = row >= case.sizes["N_q"] // case.options["block_q"] * case.options["block_q"]
    return "query-tail-lost" if in_tail and (b, h) == (0, 0) else "tile-never"


def exercise(id: str, *, options: tuple[str, ...], judged: tuple[str, ...], cases, **rest):
    """A kernel on (B, H, N, d) tensors that returns o and is given ``sms``; ``judged``: what of its schedule counts."""
    cases = tuple(replace(case, seed=600 + number) for number, case in enumerate(cases))

    def call(case: Case) -> Call:
        tensors, layouts, s = dict(zip("qkv", attention_inputs(case), strict=True)), layouts_of(case), case.sizes
        shape = (s["B"], s["H_q"], s["N_q"], s["d_v"])
        passed = {name: case.options[name] for name in options} | {"sms": s["sms"]}
        returns = (Returned("o", shape, case.dtype), Returned("schedule", (-1, len(COLUMNS)), "schedule"))
        return Call({n: Argument(x, case.dtype, layouts[n]) for n, x in tensors.items()}, passed, returns)

    def pick(outputs: Outputs) -> Outputs:
        return outputs if "stopped" in outputs else {n: x for n, x in outputs.items() if n in ("o", *judged)}

    def least(case: Case) -> dict[str, np.ndarray]:
        walked = sum(task.cost for task in schedule.forward_tasks(ledger_shape(case)))
        return _schedule(0, case.sizes["sms"], walked, bound(case))

    def budget(case: Case) -> dict[str, int]:
        job = Job(ledger_shape(case), case.sizes["sms"])
        plan = 8 * (3 * job.tiles + 2 * job.sms)  # tile, batch, head of each; a program's first and last; or a counter
        named = flash_forward.budget(case)
        lse = named.pop("lse")  # of a tile that was pasted from lab 03
        return {**named, "*": plan + lse}

    return Exercise(
        id=id,
        call=call,
        cases=cases,
        oracle=lambda case: pick({"o": _attention(case), **least(case)}),
        honest=lambda case: [pick({"o": run["o"], **least(case)}) for run in flash_forward.honest(case)],
        derive=lambda case, outputs: pick(observed(case, outputs)),
        at_most=("walked", "makespan", "settled"),
        wrong=lambda case, plan: pick(predicted(case, plan)),
        draw=lambda seed: draw_like(cases, seed),
        budget=budget,
        least=lambda case: {n: size for n, size in flash_forward.least(case).items() if n != "lse"},
        meter_says=meter_says,
        **rest,
    )


def sms_case(sms: int, *args, **rest) -> Case:
    case = attention_case(*args, **rest)
    return replace(case, sizes={**case.sizes, "sms": sms})


PERSISTENT = exercise(
    "06.persistent",
    options=("scale", "block_q", "block_k"),
    judged=("repeated", "programs", "makespan", "settled"),
    timed=timed.attention(timed.persistent, *"qkv", grown=timed.PERSISTENT),
    gpu=timed.attention_cell(products=2, B=1, H=8, N=8192),  # long enough to be timed
    title="A persistent kernel with a tile scheduler",
    points=40,
    gpu_points=10,
    minutes=35,
    difficulty=3,
    signature=(
        "attention_persistent(q, k, v, scale, block_q, block_k, sms) -> o    # at most sms programs; q (B, H_q, N_q, d)"
    ),
    cases=(
        sms_case(4, "few heads, many tiles", 96, 16, 16, 16, H_q=3, H_kv=3),
        sms_case(5, "a batch, tails on both sides", 37, 13, 16, 16, B=3, H_q=2, H_kv=2),
        sms_case(6, "grouped heads, d_v of its own", 55, 19, 16, 32, d_v=32, H_q=4, H_kv=2),
        sms_case(32, "more multiprocessors than tiles", 40, 16, 16, 16, H_q=2, H_kv=1),
        sms_case(7, "each tensor laid out its own way", 35, 13, 16, 16, B=2, H_q=4, H_kv=4, layout="uneven"),
        sms_case(4, "half precision, gaps between rows and heads", 50, 40, 16, 32, H_q=3, H_kv=1, dtype="fp16",
                 layout="padded"),
    ),
    faults=(
        *bank("heads-only-grid", "not-persistent", "too-few-programs", "uneven-share", "tile-twice", "tile-never",
              "wrong-split", "query-tail-lost"),
        *(of_the_visits(name, dealt(head_by_head, "stride")) for name in ("gqa-head-map", "borrowed-stride")),
        offset_forgotten(*(dealt(head_by_head, how) for how in ("stride", "chunks", "snake"))),
    ),
    hints=(
        "Number all tiles of all heads from 0. The loop of a program is range(its number, all tiles, all programs).",
        "With t = cdiv(N_q, block_q) tiles a head: number n is tile n % t of head n // t, counted over the batch.",
        "grid = (min(sms, tiles),): no more programs than tiles, none without work.",
    ),
)  # fmt: skip

CAUSAL = exercise(
    "06.causal",
    options=("offset", "scale", "block_q", "block_k"),
    judged=("repeated", "walked", "makespan", "settled"),
    timed=timed.attention(timed.longest_first, *"qkv"),
    title="Causal tiles, longest first",
    points=40,
    minutes=25,
    difficulty=3,
    signature=(
        "attention_longest_first(q, k, v, offset, scale, block_q, block_k, sms) -> o    # key j is seen if j <= i + "
        "offset; programs start in launch order, one a multiprocessor"
    ),
    cases=(
        sms_case(9, "the chapter's case in small, a batch", 64, 64, 16, 16, B=2, H_q=2, H_kv=2, offset=0),
        sms_case(13, "grouped heads, half precision, wide key tiles, a tail", 90, 90, 16, 32, d_v=32, H_q=4, H_kv=2,
                 dtype="fp16", layout="padded", offset=0),
        sms_case(3, "more keys than queries, heads as a model hands them over", 40, 56, 16, 16, H_q=2, H_kv=1,
                 layout="bshd", offset=16),
        sms_case(4, "rows that see no key", 61, 40, 16, 16, H_q=2, H_kv=2, offset=-20),
    ),
    faults=(
        *bank("heads-only-grid", "order-naive", "order-dealt", "tiles-past-diagonal", "tile-twice", "tile-never",
              "wrong-split", "query-tail-lost"),
        of_the_visits("gqa-head-map", alone(longest_first)),
        offset_forgotten(alone(longest_first), dealt(longest_first, "snake")),
    ),
    hints=(
        "Programs start in the order of their numbers, program_id(0) fastest. Small numbers should be long tiles.",
        "All heads' last tiles first, then the last but one: the heads are the fast index.",
        "i = t - 1 - n // heads and head = n % heads, with t query tiles a head and heads = B * H_q.",
    ),
)  # fmt: skip

EXERCISES = (GRID, ORDER, PERSISTENT, CAUSAL)
