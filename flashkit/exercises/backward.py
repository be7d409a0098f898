"""Lab 04: the backward pass. Exercises 04.row_dot, 04.dkdv, 04.dq and 04.attention."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from flashkit.exercises import backward_faults, flash_forward, timed
from flashkit.exercises.backward_faults import CannotRun, Fault, Variant
from flashkit.exercises.contract import Case, Exercise
from flashkit.exercises.flash_forward import attention_case, draw_like, read_with_strides_of
from flashkit.exercises.honest import honest_backward
from flashkit.exercises.inputs import ARITHMETIC, ITEMSIZE, NUMPY_DTYPES, attention_inputs
from flashkit.runtime.call import Argument, Call, Returned
from reference import backward, forward
from reference.shapes import kv_head

LAYOUTS = {  # what differs from "contiguous"
    "contiguous": {},
    "padded": dict.fromkeys(("q", "k", "v", "o", "do"), "padded"),
    "bshd": dict.fromkeys(("q", "k", "v", "o", "do"), "bshd"),
    "huge": dict.fromkeys(("q", "k", "v", "o", "do"), "huge"),
    "dO transposed": {"do": "bshd"},
    "K and dO transposed": {"k": "bshd", "do": "bshd"},
    "V transposed": {"v": "bshd"},
    "dO one row": {"do": "one-row"},
    "dO expanded": {"do": "expanded"},
}
SHIFT = 32.0  # of V's values "shifted": dP and D are then large and alike
REMEMBERED = 64  # cases: a diagnosis asks for the same few again and again
BELOW = 20.0  # Q's and minus K's first coordinate in values "below": scores near -100, exp(100) is inf in fp32


# ---- inputs, and what a forward saved -------------------------------------------------------------------


def layout_of(case: Case, name: str) -> str:
    return LAYOUTS[case.layout].get(name, "contiguous")


def inputs(case: Case) -> dict[str, np.ndarray]:
    """q, k, v and do ``(B, H_q, N_q, d_v)`` as float64 of the dtype's values."""
    own = case.values in ("shifted", "below")
    q, k, v = attention_inputs(replace(case, values="normal") if own else case)
    if case.values == "shifted":
        v = _rounded(v + SHIFT, case.dtype)
    if case.values == "below":  # as "negative", but less of it: dQ and dK multiply rounding by K and Q
        q[..., 0], k[..., 0] = BELOW, -100.0 * np.sqrt(q.shape[-1]) / BELOW
    do = np.random.default_rng(case.seed + 1).standard_normal((*q.shape[:3], v.shape[3]))
    if layout_of(case, "do") == "expanded":
        do[...] = 1.0
    if layout_of(case, "do") == "one-row":
        do[...] = do[:1, :1, :1]
    return {"q": q, "k": k, "v": v, "do": _rounded(do, case.dtype)}


def saved(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """What a forward leaves: o in the kernel's dtype, lse in fp32, as float64."""
    x = inputs(case)
    o, lse = forward.multi_head(x["q"], x["k"], x["v"], **case.options)
    return _rounded(o, case.dtype), lse.astype(np.float32).astype(np.float64)


@lru_cache(REMEMBERED)
def arguments(case: Case) -> dict[str, np.ndarray]:
    """Every tensor that an exercise may be given, by name."""
    x, (o, lse) = inputs(case), saved(case)
    D = (o * x["do"]).sum(axis=-1).astype(np.float32).astype(np.float64)
    return {**x, "o": o, "lse": lse, "D": D}


def _rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):  # wrong outputs may overflow fp16
        return x.astype(NUMPY_DTYPES[dtype]).astype(np.float64)


# ---- right, honest and wrong ----------------------------------------------------------------------------


@lru_cache(REMEMBERED)
def oracle(case: Case) -> dict[str, np.ndarray]:
    """float64: o, D, dq, dk, dv of the dense attention. D is that of the o which the kernel is given."""
    x = arguments(case)
    o, _ = forward.multi_head(x["q"], x["k"], x["v"], **case.options)
    dq, dk, dv = backward.multi_head(x["q"], x["k"], x["v"], x["do"], **case.options)
    return {"o": o, "D": (x["o"] * x["do"]).sum(axis=-1), "dq": dq, "dk": dk, "dv": dv}


@lru_cache(REMEMBERED)
def honest(case: Case) -> list[dict[str, np.ndarray]]:
    x = arguments(case)
    runs = honest_backward(x, case.options, case.dtype, ARITHMETIC[case.dtype])
    D = (x["o"].astype(np.float32) * x["do"].astype(np.float32)).sum(axis=-1).astype(np.float64)
    return [{**run, "D": D} for run in runs]


def wrong_row_dot(case: Case, variant: Variant) -> dict[str, np.ndarray]:
    """D as a kernel with this mistake computes it; ``{"stopped": tensors}`` where it would read outside a tensor."""
    seen = _read(case, variant)
    return seen if "stopped" in seen else {"D": _row_dot(seen["do"], seen["o"], variant)}


def wrong_gradients(case: Case, variant: Variant) -> dict[str, np.ndarray]:
    """dq, dk, dv of kernels that are given a right D and lse, and hold this mistake."""
    seen = _read(case, variant)
    return seen if "stopped" in seen else _wrong(case, variant, seen, seen["lse"], seen["D"])


def wrong_attention(case: Case, variant: Variant) -> dict[str, np.ndarray]:
    """o, dq, dk, dv of a whole Function that holds this mistake in the kernels that the variant names."""
    seen, x = _read(case, variant), arguments(case)
    if "stopped" in seen:
        return seen
    of_D, O, lse = seen if "D" in variant.kernels else x, x["o"], x["lse"]
    if variant.saved:
        steps = replace(forward.STEPS, **variant.saved)
        run = lambda problem: forward.tiled(problem, steps)  # noqa: E731
        O, lse = forward.multi_head(x["q"], x["k"], x["v"], run, arithmetic=ARITHMETIC[case.dtype], **case.options)
    loops = {"dkdv", "dq"} & set(variant.kernels)
    wrong = _wrong(case, variant, seen if loops else x, lse, _row_dot(of_D["do"], O, variant))
    right = oracle(case)
    if loops == {"dkdv"} and "dq" in wrong:
        wrong["dq"] = right["dq"]
    if loops == {"dq"} and "dq" in wrong:
        wrong |= {"dk": right["dk"], "dv": right["dv"]}
    return wrong if "crashed" in wrong else {"o": x["o"], **wrong}


def _read(case: Case, variant: Variant) -> dict[str, np.ndarray]:
    """The arguments as a kernel with borrowed strides sees them; {"stopped": tensors} where it reads outside them."""
    x, heads = arguments(case), (case.sizes["H_q"], case.sizes["H_kv"])
    if variant.kv_head and any(variant.kv_head(h, *heads) >= heads[1] for h in range(heads[0])):
        return {"stopped": ("k", "v")}
    if not variant.borrowed:
        return x
    name, owner, axes = variant.borrowed
    layouts = {n: layout_of(case, n) for n in x} | {"contiguous": "contiguous"}
    lent = read_with_strides_of({**x, "contiguous": x[name]}, layouts, name, owner, axes)
    return {"stopped": (name,)} if lent is None else {**x, name: lent}


def _row_dot(dO: np.ndarray, O: np.ndarray, variant: Variant) -> np.ndarray:
    rows = [x.reshape(-1, O.shape[-1]).astype(np.float32) for x in (dO, O)]
    return (variant.row_dot or backward.row_dot)(*rows).reshape(O.shape[:3]).astype(np.float64)


def _wrong(case: Case, variant: Variant, x, lse: np.ndarray, D: np.ndarray) -> dict[str, np.ndarray]:
    """dq, dk, dv of the tiled backward with the changed steps, given lse and D; {"crashed": True} if it cannot run."""
    steps = replace(backward.STEPS, row_dot=lambda dO, D: D[:, 0], **variant.steps)
    options = dict(case.options)
    if variant.scale:
        options["scale"] = variant.scale(case.sizes["d"], options["scale"])
    try:
        gradients = backward.multi_head(
            x["q"], x["k"], x["v"], x["do"],
            lambda problem, dO, left: backward.tiled(problem, dO, left, steps),
            saved=(D[..., None], lse),
            kv_head=variant.kv_head or kv_head,
            group_sum=steps.group_sum,
            arithmetic=ARITHMETIC[case.dtype],
            **options,
        )  # fmt: skip
    except CannotRun:
        return {"crashed": True}
    return dict(zip(("dq", "dk", "dv"), (_rounded(g, case.dtype) for g in gradients), strict=True))


# ---- budgets --------------------------------------------------------------------------------------------


def row_dot_budget(case: Case) -> dict[str, int]:
    """o and do once, D once."""
    s, size = case.sizes, ITEMSIZE[case.dtype]
    rows = s["B"] * s["H_q"] * s["N_q"]
    return {"o": rows * s["d_v"] * size, "do": rows * s["d_v"] * size, "D": rows * 4}


def dkdv_budget(case: Case) -> dict[str, int]:
    """K and V once; Q, dO, lse and D once a key tile and query head, from the first query tile that sees the tile."""
    s, o, size = case.sizes, case.options, ITEMSIZE[case.dtype]
    rows = 0
    for start in range(0, s["N_k"], o["block_k"]):
        first = max(0, start - o["offset"]) // o["block_q"] * o["block_q"] if o["causal"] else 0
        rows += s["B"] * s["H_q"] * max(0, s["N_q"] - first)
    keys = s["B"] * s["H_kv"] * s["N_k"]
    return {
        "q": rows * s["d"] * size, "k": keys * s["d"] * size, "v": keys * s["d_v"] * size,
        "do": rows * s["d_v"] * size, "lse": rows * 4, "D": rows * 4,
        "dk": keys * s["d"] * size, "dv": keys * s["d_v"] * size,
    }  # fmt: skip


def dq_budget(case: Case) -> dict[str, int]:
    """Q, dO, lse and D once; K and V once a query tile and head, up to its last visible tile: as in the forward."""
    s, size, loop = case.sizes, ITEMSIZE[case.dtype], flash_forward.budget(case)
    rows = s["B"] * s["H_q"] * s["N_q"]
    return {
        "q": loop["q"], "k": loop["k"], "v": loop["v"],
        "do": rows * s["d_v"] * size, "lse": rows * 4, "D": rows * 4, "dq": rows * s["d"] * size,
    }  # fmt: skip


def attention_budget(case: Case) -> dict[str, int]:
    """The forward and the three kernels together; do, lse and D may have any name, so they are counted as scratch."""
    total: dict[str, int] = {}
    for part in (flash_forward.budget, row_dot_budget, dkdv_budget, dq_budget):
        for name, size in part(case).items():
            name = "*" if name in ("do", "lse", "D") else name
            total[name] = total.get(name, 0) + size
    return total


# ---- what the meter's findings stand for ----------------------------------------------------------------


def meter_says(case: Case, finding) -> str:
    """The named mistake behind a finding, where its coordinates leave no doubt; otherwise ""."""
    tensor = finding.tensor.lower()
    if finding.kind == "race":
        return _race(case, finding, tensor)
    if finding.kind == "uninitialised":
        return "preprocess-tile" if len(finding.index) < 4 and "lse" not in tensor else ""
    if finding.kind == "unwritten":
        return _unwritten(case, finding)
    if finding.kind != "outside":
        return ""
    return "int32-overflow" if finding.overflow else _past_the_end(case, finding, tensor)


def _race(case: Case, finding, tensor: str) -> str:
    if "dq" in tensor:
        return "dq-race"
    grouped = case.sizes["H_q"] > case.sizes["H_kv"] and ("dk" in tensor or "dv" in tensor)
    only_heads_differ = finding.program[::2] == finding.other_program[::2]  # grids are (tiles, heads, ...)
    return "gqa-not-summed" if grouped and only_heads_differ else "race"


def _unwritten(case: Case, finding) -> str:
    """Rows past the last full tile: the grid was rounded down."""
    s, o, of_keys = case.sizes, case.options, finding.tensor in ("dk", "dv")
    rows, block = (s["N_k"], o["block_k"]) if of_keys else (s["N_q"], o["block_q"])
    row = finding.index[-1 if finding.tensor == "D" else -2]
    if row >= rows // block * block:
        return "key-tail-lost" if of_keys else "query-tail-lost"
    return "preprocess-tile" if finding.tensor == "D" else ""


def _past_the_end(case: Case, finding, tensor: str) -> str:
    """The tail mistake whose finding this is: the row lies outside by less than a tile."""
    s, o = case.sizes, case.options
    of_keys = tensor.removesuffix("_ptr") in ("k", "v", "dk", "dv")
    rows, block = (s["N_k"], o["block_k"]) if of_keys else (s["N_q"], o["block_q"])
    row = finding.index[-2] if len(finding.index) in (2, 4) else finding.index[-1]
    if not rows <= row < -(-rows // block) * block:
        return ""
    return "tail-store-unmasked" if finding.access == "store" else "tail-load-unmasked"


# ---- cases ----------------------------------------------------------------------------------------------


def _seeded(cases) -> tuple[Case, ...]:
    return tuple(replace(case, seed=400 + number) for number, case in enumerate(cases))


def exercise(id: str, *, given: tuple[str, ...], returns: tuple[str, ...], options: tuple[str, ...], cases, faults,
             **rest) -> Exercise:  # fmt: skip
    """An exercise on these arguments and outputs; faults keep the variants that such kernels can spell."""
    cases = _seeded(cases)

    def call(case: Case) -> Call:
        x = arguments(case)
        tensors = {
            name: Argument(x[name], "fp32" if name in ("lse", "D") else case.dtype, layout_of(case, name))
            for name in given
        }
        like = {"dq": "q", "dk": "k", "dv": "v", "o": "o", "D": "D"}
        outputs = tuple(Returned(n, x[like[n]].shape, "fp32" if n == "D" else case.dtype) for n in returns)
        upstream = "do" if id == "04.attention" else ""
        return Call(tensors, {name: case.options[name] for name in options}, outputs, upstream=upstream)

    def pick(outputs):
        return outputs if {"stopped", "crashed"} & set(outputs) else {name: outputs[name] for name in returns}

    wrong = rest.pop("wrong")
    return Exercise(
        id=id,
        call=call,
        cases=cases,
        oracle=lambda case: pick(oracle(case)),
        honest=lambda case: [pick(run) for run in honest(case)],
        wrong=lambda case, variant: pick(wrong(case, variant)),
        draw=lambda seed: draw_like(cases, seed),
        faults=tuple(spelled(fault, given) for fault in faults),
        meter_says=meter_says,
        lse_outputs=("D",),
        **rest,
    )


def spelled(fault: Fault, tensors: tuple[str, ...]) -> Fault:
    """The fault without the variants that need a tensor which the kernels are not given."""
    known = {*tensors, "contiguous"}
    return replace(fault, variants=tuple(v for v in fault.variants if not v.borrowed or {*v.borrowed[:2]} <= known))


ROW_DOT_CASES = (
    attention_case("half precision", 45, 7, 32, 16, d_v=64, H_q=2, H_kv=2, dtype="fp16", layout="bshd"),
    attention_case("tiles fit exactly", 32, 5, 16, 16, H_q=2, H_kv=2),
    attention_case("a tail, and d_v of its own", 37, 5, 16, 16, d_v=32, B=2),
    attention_case("one query", 1, 3, 16, 16),
    attention_case("a sequence shorter than a tile", 11, 5, 32, 16),
    attention_case("dO as a model hands it over", 18, 5, 16, 16, B=2, H_q=3, H_kv=3, layout="dO transposed"),
    attention_case("dO is one row for all", 21, 5, 16, 16, H_q=2, H_kv=2, layout="dO one row"),
    attention_case("gaps between rows, heads and batches", 29, 5, 32, 16, B=2, H_q=2, H_kv=2, layout="padded"),
    attention_case("a large D", 23, 5, 16, 16, values="shifted"),
    attention_case("strides beyond 32 bits", 9, 5, 16, 16, B=3, layout="huge"),
)

CASES = (
    attention_case("half precision, gaps everywhere, two heads share one", 41, 39, 32, 32, d=32, d_v=16, H_q=2,
                   dtype="fp16", layout="padded"),
    attention_case("one tile", 16, 16, 16, 16),
    attention_case("square tiles, tails on both sides", 21, 37, 16, 16),
    attention_case("four query heads share two", 17, 19, 16, 16, H_q=4, H_kv=2),
    attention_case("dO as a model hands it over", 18, 18, 16, 16, H_q=2, H_kv=2, layout="dO transposed"),
    attention_case("unequal tiles, d_v != d, a scale of its own", 37, 53, 16, 32, d_v=32, scale=0.4),
    attention_case("one query, one key", 1, 1, 16, 16),
    attention_case("dO is one row for all", 20, 33, 16, 32, layout="dO one row"),
    attention_case("K and dO laid out their own way", 18, 18, 32, 16, H_q=3, H_kv=3, layout="K and dO transposed"),
    attention_case("V laid out its own way, six heads share two", 12, 12, 16, 16, H_q=6, H_kv=2, layout="V transposed"),
    attention_case("causal, bottom-right, block_q larger", 40, 70, 32, 16, offset=30),
    attention_case("causal, block_k larger", 45, 61, 16, 32, offset=16),
    attention_case("rows that see no key", 45, 33, 16, 32, offset=-12),
    attention_case("keys that no query sees", 17, 60, 16, 16, offset=5),
    attention_case("all scores far below zero", 17, 43, 16, 32, values="below"),
    attention_case("scores that overflow exp", 23, 35, 16, 16, values="large"),
    attention_case("large dP and D that nearly cancel", 19, 35, 16, 16, values="shifted"),
    attention_case("strides beyond 32 bits", 9, 17, 16, 16, B=3, layout="huge"),
)  # fmt: skip

ATTENTION_CASES = (
    *CASES[:6],
    attention_case("dO is one number, as o.sum() gives it", 19, 21, 16, 16, H_q=2, layout="dO expanded"),
    *(case for case in CASES[6:] if case.layout != "V transposed"),
)

# ---- the exercises --------------------------------------------------------------------------------------

IN_MEMORY = ("tail-load-unmasked", "tail-store-unmasked", "other-missing", "int32-overflow", "race", "do-contiguous")
IN_BOTH = (
    "d-missing", "d-added", "p-unnormalised", "lse-base", "ds-without-p", "d-outside-p", "ds-is-p", "empty-row-nan",
    "scale-missing-scores", "scale-argument-ignored", "causal-ignored", "causal-always", "causal-top-left",
    "causal-strict", "causal-offset-sign", "causal-transposed", "causal-local-index", "gqa-head-map",
    "borrowed-stride", *IN_MEMORY,
)  # fmt: skip
IN_DKDV = (
    "scale-missing-dk", "scale-twice-dk", "dv-not-transposed", "dk-not-transposed", "dkdv-last-tile",
    "causal-start-late", "query-tile-skipped", "gqa-not-summed", "key-tail-lost",
)  # fmt: skip
IN_DQ = (
    "scale-missing-dq", "scale-twice-dq", "tail-mask-missing", "dq-last-tile", "dq-race", "causal-bound-short",
    "key-tile-skipped", "query-tail-lost",
)  # fmt: skip
IN_ATTENTION = ("d-unnormalised", "d-in-fp16", "d-one-factor", "d-mean", "scale-missing-gradients",
                "scale-twice-gradients", "preprocess-tile")  # fmt: skip

ROW_DOT = exercise(
    "04.row_dot",
    given=("o", "do"),
    returns=("D",),
    timed=timed.attention(timed.row_dot, "o", "do"),
    options=("block_q",),
    title="D: one scalar a query",
    points=10,
    minutes=15,
    difficulty=1,
    signature="row_dot(o, do, block_q) -> D    # o, do (B, H_q, N_q, d_v); D (B, H_q, N_q) fp32: row sums of do * o",
    cases=ROW_DOT_CASES,
    wrong=wrong_row_dot,
    faults=backward_faults.bank("d-in-fp16", "d-one-factor", "d-mean", "borrowed-stride", "query-tail-lost",
                                "preprocess-tile", *IN_MEMORY),
    budget=row_dot_budget,
    hints=(
        "One program a (query tile, batch and head): load block_q rows of o and of do, with masks.",
        "Convert both to fp32 before the product, and sum along axis 1.",
        "do has strides of its own, and they may be 0. D is torch.empty((B, H_q, N_q), dtype=torch.float32).",
    ),
)  # fmt: skip

OPTIONS = ("causal", "offset", "scale", "block_q", "block_k")
GIVEN = ("q", "k", "v", "do", "lse", "D")

DKDV = exercise(
    "04.dkdv",
    given=GIVEN,
    returns=("dk", "dv"),
    timed=timed.attention(timed.dkdv, *GIVEN),
    options=OPTIONS,
    title="dK and dV: a key tile owns them",
    points=35,
    minutes=45,
    difficulty=4,
    signature=(
        "key_value_gradients(q, k, v, do, lse, D, causal, offset, scale, block_q, block_k) -> (dk, dv)"
        "    # dk like k, dv like v; lse, D (B, H_q, N_q) fp32"
    ),
    cases=CASES,
    wrong=wrong_gradients,
    faults=backward_faults.bank(*IN_BOTH, *IN_DKDV),
    budget=dkdv_budget,
    hints=(
        "One program owns a key tile of a K/V head. It loops over the group's query heads and over their query tiles.",
        "P = exp(S - lse), dP = do V^T, dS = P * (dP - D); then dV += P^T do, dK += dS^T Q. Scale dK at the end.",
        "Causal: the first query that sees key n is n - offset. Start at its tile, and do not start below 0.",
    ),
)

DQ = exercise(
    "04.dq",
    given=GIVEN,
    returns=("dq",),
    timed=timed.attention(timed.dq, *GIVEN),
    options=OPTIONS,
    title="dQ: a query tile owns it",
    points=20,
    minutes=20,
    difficulty=3,
    signature=(
        "query_gradient(q, k, v, do, lse, D, causal, offset, scale, block_q, block_k) -> dq"
        "    # dq like q; lse, D (B, H_q, N_q) fp32"
    ),
    cases=CASES,
    wrong=wrong_gradients,
    faults=backward_faults.bank(*IN_BOTH, *IN_DQ),
    budget=dq_budget,
    hints=(
        "The loop is the forward's: one program a query tile and head, walking over the key tiles that it sees.",
        "Load Q, do, lse and D once, before the loop. In the loop: S, P, dP, dS, then dQ += dS K.",
        "A key past N_k was loaded as 0, so its score is 0 and exp(0 - lse) can be inf. Set its P to 0.",
    ),
)


def spread(fault: Fault) -> Fault:
    """A mistake that three kernels can hold, in each of them alone too."""
    everywhere = [v for v in fault.variants if v.steps and v.kernels == backward_faults.EVERYWHERE]
    alone = [replace(v, kernels=(kernel,)) for v in everywhere for kernel in ("dkdv", "dq")]
    return replace(fault, variants=(*fault.variants, *alone))


ATTENTION = exercise(
    "04.attention",
    given=("q", "k", "v", "do"),
    returns=("o", "dq", "dk", "dv"),
    timed=timed.attention(timed.forward_and_backward, *"qkv", "do"),
    options=OPTIONS,
    title="One autograd.Function",
    points=35,
    gpu_points=10,
    gpu=timed.attention_cell(products=7),
    minutes=30,
    difficulty=3,
    signature=(
        "attention(q, k, v, causal, offset, scale, block_q, block_k) -> o"
        "    # o (B, H_q, N_q, d_v), and autograd gives the gradients of q, k and v"
    ),
    cases=ATTENTION_CASES,
    wrong=wrong_attention,
    faults=tuple(
        spread(f) if f.name in IN_BOTH else f
        for f in backward_faults.bank(*IN_BOTH, *IN_DKDV, *IN_DQ, *IN_ATTENTION)
    ),
    budget=attention_budget,
    hints=(
        "forward: call flash_forward, ctx.save_for_backward(q, k, v, o, lse), keep the options on ctx, return o.",
        "backward(ctx, do): D, then the two gradient kernels. Return dq, dk, dv and a None for each option.",
        "do may be a view with any strides. If a kernel wants stride 1 in the last axis, copy it: do.contiguous().",
    ),
)  # fmt: skip

EXERCISES = (ROW_DOT, DKDV, DQ, ATTENTION)
