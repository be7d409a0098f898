"""What the row exercises of labs 01 and 02 share: softmax of given scores is attention with K = I and scale 1.

So the fault bank of the forward serves them too: a row of x is a query, a column is a key, V = I gives P itself.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from flashkit.exercises.contract import Case, Fault
from flashkit.exercises.forward_faults import Variant
from flashkit.exercises.honest import EXP2_STEPS, unlucky
from flashkit.exercises.inputs import ARITHMETIC, NUMPY_DTYPES
from reference.forward import STEPS, Problem, State, Tile, cut, dense, tiled

KINDS = {
    "normal": lambda x: 2 * x,
    "large": lambda x: 60 * x,
    "negative": lambda x: x - 200,
    "rising": lambda x: x + np.linspace(0, 14, x.shape[1]),
    "falling": lambda x: x + np.linspace(0, -400, x.shape[1]),  # over 88 a block, so that exp(m - m_new) overflows
    "trap": lambda x: np.full_like(x, -(2.0**31)),
}


def row_case(why: str, rows: int, columns: int, block: int | None = None, **rest) -> Case:
    """A case on scores ``(rows, columns)``; ``block`` None: the student's, who holds whole rows."""
    return Case(why, {"rows": rows, "columns": columns}, {"block": block} if block else {}, **rest)


def block_of(case: Case, least: int = 1) -> int:
    """The case's block, or the power of two, ``least`` or more, that holds a whole row."""
    return case.options.get("block") or max(least, 1 << (case.sizes["columns"] - 1).bit_length())


def scores(case: Case) -> np.ndarray:
    """The scores ``(rows, columns)``, rounded to the case's dtype."""
    rng = np.random.default_rng(case.seed)
    x = KINDS[case.values](rng.standard_normal((case.sizes["rows"], case.sizes["columns"])))
    return x.astype(NUMPY_DTYPES[case.dtype]).astype(np.float64)


def values(case: Case) -> np.ndarray:
    """V ``(columns, d_v)``, or the identity where the weights themselves are asked for."""
    columns, d_v = case.sizes["columns"], case.sizes.get("d_v", 0)
    if not d_v:
        return np.eye(columns)
    v = np.random.default_rng(case.seed + 1).standard_normal((columns, d_v))
    return v.astype(NUMPY_DTYPES[case.dtype]).astype(np.float64)


def problem(case: Case, least: int = 1, **more) -> Problem:
    x = scores(case)
    return Problem(x, np.eye(x.shape[1]), values(case), scale=1.0, block_q=16, block_k=block_of(case, least), **more)


def oracle(case: Case) -> np.ndarray:
    return dense(problem(case))[0]


@lru_cache(maxsize=64)  # a second check asks for the same cases again
def honest(case: Case) -> list[np.ndarray]:
    """The course's right algorithm in the kernel's precision, with exp, with exp2, and in fp32 with bad roundings."""
    low = problem(case, arithmetic=ARITHMETIC[case.dtype])
    dtype = NUMPY_DTYPES[case.dtype]
    runs = [tiled(low, steps)[0] for steps in (STEPS, EXP2_STEPS)]
    if case.dtype == "fp32":
        runs += [unlucky(low, seed)[0] for seed in (1, 2, 3)]
    return [o.astype(dtype).astype(np.float64) for o in runs]


def wrong(case: Case, variant: Variant, least: int = 1) -> np.ndarray:
    low = problem(case, least, arithmetic=ARITHMETIC[case.dtype])
    steps = STEPS if case.sizes.get("d_v") else replace(STEPS, accumulate=_placed)
    with np.errstate(over="ignore"):
        o = tiled(low, replace(steps, **variant.steps))[0].astype(NUMPY_DTYPES[case.dtype])
    return o.astype(np.float64)


def wrong_two_passes(case: Case, variant: Variant, again: bool) -> np.ndarray:
    """A first pass over the blocks with the mistake, which leaves m and l; a second one stores exp(x - m) / l.

    ``again`` says whether the second pass computes its exponentials with the mistake too.
    """
    p = problem(case, arithmetic=ARITHMETIC[case.dtype])
    steps, dtype = replace(STEPS, accumulate=_summed, **variant.steps), p.arithmetic.accumulator
    y = np.empty(p.Q.shape, dtype)
    with np.errstate(all="ignore"):
        for i in range(p.query_tiles):
            state = steps.init(len(p.rows(i)), 0, dtype)
            for j in steps.visit(p, i):
                tile = cut(p, i, j)
                tile.S = steps.score(tile)
                S = steps.mask(tile.S, tile)
                m_new = steps.new_max(state.m, S, tile)
                P = steps.weights(S, m_new)
                state = steps.accumulate(steps.rescale(state, m_new), P, tile)
            exp = steps.weights if again else STEPS.weights
            whole = State(state.m, state.l, exp(p.Q[p.rows(i)].astype(dtype), state.m))
            y[p.rows(i)] = steps.finish(whole)[0]
        return y.astype(NUMPY_DTYPES[case.dtype]).astype(np.float64)


def _summed(state: State, P: np.ndarray, tile: Tile) -> State:
    return State(state.m, state.l + P.sum(axis=1), state.acc)


def two_passes(fault: Fault) -> Fault:
    """For kernels that carry m and l alone and read the row again."""
    return replace(fault, variants=tuple((variant, again) for variant in fault.variants for again in (False, True)))


def _placed(state: State, P: np.ndarray, tile: Tile) -> State:
    """P V with V the identity, without a product: inf * 0 would be NaN in columns that the kernel never touches."""
    acc, here = state.acc.copy(), tile.keys < state.acc.shape[1]
    acc[:, tile.keys[here]] += P[:, here]
    return State(state.m, state.l + P.sum(axis=1), acc)


def padded_either_way(fault: Fault) -> Fault:
    """For kernels that hold whole rows: the block is the next power of two, or at least 16."""
    return replace(fault, variants=tuple((variant, least) for variant in fault.variants for least in (1, 16)))


def draw_like(cases: tuple[Case, ...], seed: int) -> tuple[Case, ...]:
    """Secret cases: other sizes (a tail stays a tail) and other values."""
    rng = np.random.default_rng(seed)

    def jitter(case: Case) -> Case:
        sizes, block = dict(case.sizes), block_of(case)
        sizes["rows"] = max(1, sizes["rows"] + int(rng.integers(-2, 3))) if sizes["rows"] > 1 else 1
        if sizes["columns"] % block and sizes["columns"] > 1:
            low = max(sizes["columns"] // block * block, 0 if case.options else block // 2) + 1
            sizes["columns"] = int(rng.integers(low, low // block * block + block))
        return replace(case, sizes=sizes, seed=int(rng.integers(2**31)))

    return tuple(jitter(case) for case in cases)
