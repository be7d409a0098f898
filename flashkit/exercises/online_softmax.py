"""Lab 02: online softmax. Exercises 02.merge, 02.softmax, 02.cuda and 02.weighted_sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flashkit.exercises import rows, timed
from flashkit.exercises.contract import COMPILED, NUMBER, Case, CudaKernel, Exercise, Fault, Timed
from flashkit.exercises.forward_faults import FAULT
from flashkit.exercises.hbm_traffic import row_meter_says, softmax_exercise
from flashkit.exercises.inputs import ITEMSIZE
from flashkit.exercises.rows import row_case
from flashkit.runtime.call import Argument, Call, Returned
from reference.online_softmax import State, merge

# ---- (a) merging two states by hand ---------------------------------------------------------------------

INF = float("inf")
STATES = {  # (m, l, o) twice
    "the chapter's two blocks": ((2.0, 1 + np.exp(-1), 8 + 2 * np.exp(-1)), (3.0, 1 + np.exp(-3), 4 + 10 * np.exp(-3))),
    "block A s=0 v=10, block B s=ln 3 v=2": ((0.0, 1.0, 10.0), (float(np.log(3)), 1.0, 2.0)),
    "the first maximum is larger": ((5.0, 2.5, -1.5), (1.0, 4.0, 3.0)),
    "far apart": ((-400.0, 3.0, 2.0), (300.0, 1.5, -6.0)),
    "the first state is empty": ((-INF, 0.0, 0.0), (1.0, 2.0, 3.0)),
    "the second state is empty": ((1.0, 2.0, 3.0), (-INF, 0.0, 0.0)),
    "both are empty": ((-INF, 0.0, 0.0), (-INF, 0.0, 0.0)),
}
NAMES = ("m_a", "l_a", "o_a", "m_b", "l_b", "o_b")


def _merge_case(why: str, a, b) -> Case:
    return Case(why, {}, dict(zip(NAMES, map(float, (*a, *b)), strict=True)), dtype="number")


def _states(case: Case) -> tuple[tuple, tuple]:
    values = tuple(case.options[name] for name in NAMES)
    return values[:3], values[3:]


def _merged(case: Case) -> dict[str, np.ndarray]:
    a, b = (State(np.array([m]), np.array([l]), np.array([[o]])) for m, l, o in _states(case))
    both = merge(a, b)
    return {"m": both.m[0], "l": both.l[0], "o": both.acc[0, 0]}


def _numbers(m, l, o) -> dict[str, np.ndarray]:
    return {"m": np.array(m), "l": np.array(l), "o": np.array(o)}


def _merge_wrong(alpha_l, alpha_o):
    """A merge whose factors for l and o are ``alpha(m_old, m_new)``; the maximum is right."""

    def variant(a, b):
        m = max(a[0], b[0])
        with np.errstate(invalid="ignore", over="ignore"):
            l = sum(np.float64(alpha_l(np.float64(s[0]), m)) * s[1] for s in (a, b))
            o = sum(np.float64(alpha_o(np.float64(s[0]), m)) * s[2] for s in (a, b))
        return _numbers(m, l, o)

    return variant


def _right(m_old, m_new):
    return np.exp(m_old - m_new) if m_old > -INF else 0.0


def _one(m_old, m_new):
    return 1.0


def _inverse(m_old, m_new):
    return np.exp(m_new - m_old) if m_old > -INF else 0.0


def _averaged(l_of):
    """Each state normalised by itself, then averaged."""

    def variant(a, b):
        o = [s[2] / s[1] if s[1] else 0.0 for s in (a, b)]
        return _numbers(max(a[0], b[0]), l_of(a[1], b[1]), sum(o) / 2)

    return variant


def _guarded(variant, m_of=max):
    """The same, with the empty state returned where the new maximum is -inf."""
    return lambda a, b: _numbers(-INF, 0.0, 0.0) if m_of(a[0], b[0]) == -INF else variant(a, b)


def _draw_states(seed: int) -> tuple[Case, ...]:
    rng = np.random.default_rng(seed)

    def shaken(state):
        return state if state[0] == -INF else tuple(float(x) for x in np.array(state) + rng.uniform(0.1, 1.0, 3))

    return tuple(_merge_case(why, shaken(a), shaken(b)) for why, (a, b) in STATES.items())


def _kept(which: int):
    """One state's maximum is kept, whichever is larger."""

    def variant(a, b):
        m = (a, b)[which][0]
        with np.errstate(all="ignore"):
            factors = [np.exp(np.float64(s[0]) - m) if s[0] > -INF else 0.0 for s in (a, b)]
            l, o = (sum(f * s[part] for f, s in zip(factors, (a, b), strict=True)) for part in (1, 2))
        return _numbers(m, l, o)

    return variant


MERGE = Exercise(
    id="02.merge",
    title="Merge two partial softmax states",
    points=10,
    minutes=15,
    difficulty=2,
    signature="merge(m_a, l_a, o_a, m_b, l_b, o_b) -> (m, l, o)    # plain floats; an empty state is (-inf, 0, 0)",
    call=lambda case: Call({}, dict(case.options), tuple(Returned(name, (), "number") for name in ("m", "l", "o"))),
    oracle=_merged,
    honest=lambda case: [],
    wrong=lambda case, variant: variant(*_states(case)),
    cases=tuple(_merge_case(why, a, b) for why, (a, b) in STATES.items()),
    draw=_draw_states,
    faults=(
        replace(FAULT["rescale-numerator-only"], variants=(_merge_wrong(_one, _right),)),
        replace(FAULT["rescale-denominator-only"], variants=(_merge_wrong(_right, _one),)),
        replace(FAULT["rescale-neither"], variants=(_merge_wrong(_one, _one),)),
        replace(FAULT["rescale-inverse"], variants=(_merge_wrong(_inverse, _inverse),)),
        replace(FAULT["exp2-without-log2e"], variants=(
            _merge_wrong(lambda old, new: np.exp2(old - new) if old > -INF else 0.0,
                         lambda old, new: np.exp2(old - new) if old > -INF else 0.0),
        )),
        Fault("first-max-kept", "the first state's maximum is kept instead of the larger one",
              "Which of the two maxima may both states be moved to without overflow?",
              (_kept(0), _kept(1), _guarded(_kept(0), lambda a, b: a), _guarded(_kept(1), lambda a, b: b))),
        Fault("states-averaged", "each state is normalised by itself and the two results are averaged",
              "A state with a large l must weigh more: add numerators and denominators, do not average.",
              (_averaged(lambda a, b: 1.0), _guarded(_averaged(lambda a, b: 1.0)), _averaged(lambda a, b: a + b))),
        Fault("empty-state-nan", "an empty state gives -inf - -inf, which is NaN",
              "If both maxima are -inf, what should exp(m_a - m) be?",
              (_merge_wrong(lambda old, new: np.exp(old - new), lambda old, new: np.exp(old - new)),)),
    ),
    budget=lambda case: {},
    hints=(
        "The new maximum is the larger of the two.",
        "Each state's l and o are multiplied by exp(its own m - new m); then they are added.",
        "An empty state has m = -inf: its factor is 0, also when both are empty.",
    ),
    shares=NUMBER,
)  # fmt: skip


# ---- (b) and (c) rows longer than a tile ----------------------------------------------------------------

ONLINE_FAULTS = tuple(FAULT[name] for name in (
    "rescale-denominator-only", "rescale-neither", "rescale-inverse", "own-max", "no-max", "max-from-zero",
    "tail-mask-missing", "finite-mask-value", "mask-after-max", "exp2-without-log2e", "division-forgotten",
    "key-tail-lost", "last-tile-twice", "first-tile-skipped",
    "tail-load-unmasked", "tail-store-unmasked", "other-missing", "race",
))  # fmt: skip
ROW_CASES = (
    row_case("blocks fit", 4, 64, 32),
    row_case("a tail", 5, 77, 32),
    row_case("one column", 3, 1, 16),
    row_case("shorter than a block", 2, 9, 32),
    row_case("every block raises the maximum", 4, 100, 32, values="rising"),
    row_case("every block lowers the maximum", 4, 100, 32, values="falling"),
    row_case("scores that overflow exp", 4, 90, 32, values="large"),
    row_case("all scores far below zero", 4, 64, 32, values="negative"),
    row_case("all scores far below zero, and a tail", 4, 70, 32, values="negative"),
    row_case("every score below any finite mask", 3, 50, 32, values="trap"),
    row_case("half precision, gaps between the rows", 6, 90, 32, dtype="fp16", layout="padded"),
)

ROW_SOFTMAX = softmax_exercise(
    "02.softmax",
    ROW_CASES,
    # no numerator is carried, so the denominator alone cannot be wrong
    tuple(rows.two_passes(f) for f in ONLINE_FAULTS if f.name != "rescale-denominator-only"),
    loads=2,
    title="Online softmax of rows longer than a block",
    points=20,
    minutes=25,
    difficulty=3,
    signature="online_row_softmax(x, block) -> y    # x, y (rows, columns); two passes over a row, block by block",
    hints=(
        "First pass: carry m and l over the blocks. Second pass: y = exp(x - m) / l.",
        "m_new = max(m, block maximum); l = l * exp(m - m_new) + sum(exp(x - m_new)).",
        "Lanes past the row's end hold -inf. Start with m = -inf and l = 0.",
    ),
)

# CUDA C++: one block a row; any number of threads, so only mistakes that do not depend on it have a wrong oracle

CUDA_CASES = tuple(
    replace(case, seed=320 + number, options={}, layout="padded" if number % 2 else "contiguous")
    for number, case in enumerate(
        (
            row_case("whole warps", 4, 256),
            row_case("a tail", 5, 1003),
            row_case("one column", 3, 1),
            row_case("shorter than a warp", 2, 19),
            row_case("later columns are larger", 4, 700, values="rising"),
            row_case("later columns are smaller", 4, 700, values="falling"),
            row_case("scores that overflow exp", 4, 900, values="large"),
            row_case("all scores far below zero", 4, 300, values="negative"),
        )
    )
)


def _cuda_launch(case: Case, threads: int) -> dict[str, object]:
    timed = case.values == "timed"  # its values are made on the GPU
    x = np.zeros((1, 1), np.float32) if timed else rows.scores(case).astype(np.float32)
    return {"values": x, "gap": 24 * (case.layout == "padded"), "grid": case.sizes["rows"], "threads": threads}


def _per_warp(x: np.ndarray, warps: int) -> np.ndarray:
    """Softmax where each warp keeps its own columns' maximum and sum: thread t holds columns t, t + threads, ..."""
    warp = np.arange(x.shape[1]) // 32 % warps
    y = np.zeros_like(x)
    for w in range(warps):
        own = x[:, warp == w]
        if own.size:
            e = np.exp(own - own.max(axis=1, keepdims=True))
            y[:, warp == w] = e / e.sum(axis=1, keepdims=True)
    return y


def _cuda_wrong(case: Case, variant) -> dict[str, np.ndarray]:
    return {"y": _per_warp(rows.scores(case), variant) if isinstance(variant, int) else rows.wrong(case, variant)}


CUDA = Exercise(
    id="02.cuda",
    title="Online softmax in CUDA C++: one block a row, warp shuffles",
    points=4,
    gpu_points=16,
    minutes=45,
    difficulty=4,
    signature="online_row_softmax_cuda() -> (source, threads)    # the text of the kernel, and threads a block",
    call=lambda case: Call({}, {}, (Returned("source", (), "text"), Returned("threads", (), "number"))),
    oracle=lambda case: {"y": rows.oracle(case)},
    honest=lambda case: [{"y": y} for y in rows.honest(case)],
    wrong=_cuda_wrong,
    cases=CUDA_CASES,
    draw=lambda seed: rows.draw_like(CUDA_CASES, seed),
    faults=(
        *(FAULT[n] for n in ("no-max", "max-from-zero", "exp2-without-log2e", "division-forgotten")),
        Fault("warps-not-combined", "each warp uses the maximum and the sum of its own columns only",
              "A shuffle stays inside a warp. How do the warps of a block tell each other?", (2, 4, 8, 16, 32)),
    ),
    budget=lambda case: {},
    shares=COMPILED,
    cuda=CudaKernel(
        name="online_row_softmax",
        archs=("90a", "80"),
        launch=_cuda_launch,
        timed=Case("timed", {"rows": 8192, "columns": 8192}, values="timed"),
        passes=2,
    ),
    hints=(
        "Thread t carries m and l over the columns t, t + blockDim.x, ...; then the threads merge their states.",
        "In a warp: for (int step = 16; step > 0; step /= 2) merge with __shfl_xor_sync(0xffffffffu, m, step); so l.",
        "Lane 0 of each warp writes (m, l) to __shared__ memory; after __syncthreads() every thread merges the warps'.",
    ),
)  # fmt: skip

# ---- (d) softmax(s) @ v in one pass ---------------------------------------------------------------------


def _sum_call(case: Case) -> Call:
    s, v = rows.scores(case), rows.values(case)
    tensors = {"s": Argument(s, case.dtype, case.layout), "v": Argument(v, case.dtype, case.layout)}
    return Call(tensors, {"block": case.options["block"]}, (Returned("o", (len(s), v.shape[1]), case.dtype),))


def _sum_budget(case: Case) -> dict[str, int]:
    size, n = ITEMSIZE[case.dtype], case.sizes
    return {
        "s": n["rows"] * n["columns"] * size,
        "v": n["rows"] * n["columns"] * n["d_v"] * size,
        "o": n["rows"] * n["d_v"] * size,
    }


def _sum_meter_says(case: Case, finding) -> str:
    columns = case.sizes["columns"]
    if finding.kind == "outside" and finding.tensor == "v" and finding.index[0] >= columns:
        return "v-tail-unmasked"
    return row_meter_says(case, finding) if finding.tensor == "s" or finding.kind == "race" else ""


WEIGHTED_SUM = Exercise(
    id="02.weighted_sum",
    title="softmax(s) @ v in one pass",
    points=25,
    minutes=30,
    difficulty=3,
    signature="weighted_sum(s, v, block) -> o    # s (rows, columns), v (columns, d_v), o (rows, d_v); s is read once",
    call=_sum_call,
    oracle=lambda case: {"o": rows.oracle(case)},
    honest=lambda case: [{"o": o} for o in rows.honest(case)],
    wrong=lambda case, variant: {"o": rows.wrong(case, variant)},
    cases=tuple(
        replace(case, sizes={**case.sizes, "d_v": 16 + 16 * (number % 2)}, seed=340 + number)
        for number, case in enumerate(ROW_CASES)
    ),
    draw=lambda seed: rows.draw_like(WEIGHTED_SUM.cases, seed),
    faults=(
        *(FAULT[n] for n in ("rescale-numerator-only", "normalised-every-step", "v-tail-unmasked")),
        *ONLINE_FAULTS,
    ),
    budget=_sum_budget,
    timed=Timed(timed.ROWS, timed.weighted_sum, timed.weighted_sum_tensors),
    meter_says=_sum_meter_says,
    hints=(
        "One program owns a row and carries m, l and acc (d_v numbers).",
        "The tile's weights p = exp(s - m_new) multiply v's rows: acc = acc * alpha + sum(p[:, None] * v, axis 0).",
        "Both l and acc are rescaled by alpha; divide once at the end.",
    ),
)

EXERCISES = (MERGE, ROW_SOFTMAX, CUDA, WEIGHTED_SUM)
