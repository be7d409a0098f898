"""Lab 03: FlashAttention forward. Exercises 03.tile, 03.rows, 03.causal and 03.heads."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from flashkit.exercises import timed
from flashkit.exercises.contract import Case, Exercise
from flashkit.exercises.forward_faults import EMPTY_ROW, Variant, bank
from flashkit.exercises.honest import honest_forward
from flashkit.exercises.inputs import ARITHMETIC, ITEMSIZE, attention_inputs
from flashkit.runtime.call import Argument, Call, Returned
from flashkit.runtime.placement import strides_of
from reference.forward import STEPS, dense, kv_head, multi_head, tiled


def attention_case(
    why, N_q, N_k, block_q, block_k, d=16, d_v=None, B=1, H_q=1, H_kv=1, offset=None, scale=None, **rest
):
    """A case of an attention exercise; ``offset`` None means no causal mask, ``scale`` None 1/sqrt(d)."""
    sizes = {"B": B, "H_q": H_q, "H_kv": H_kv, "N_q": N_q, "N_k": N_k, "d": d, "d_v": d_v or d}
    options = {
        "causal": offset is not None,
        "offset": offset or 0,
        "scale": float(scale or 1 / np.sqrt(d)),
        "block_q": block_q,
        "block_k": block_k,
    }
    return Case(why, sizes, options, **rest)


# ---- what the exercises share ---------------------------------------------------------------------------


def layouts_of(case: Case) -> dict[str, str]:
    """Layout of each tensor: ``mixed`` and ``uneven`` give V, or K, another one than the rest."""
    if case.layout == "mixed":
        return {"q": "contiguous", "k": "contiguous", "v": "bshd"}
    if case.layout == "uneven":
        return {"q": "padded", "k": "contiguous", "v": "padded"}
    return dict.fromkeys("qkv", case.layout)


def oracle(case: Case) -> dict[str, np.ndarray]:
    """Dense float64 attention: o ``(B, H_q, N_q, d_v)``, lse ``(B, H_q, N_q)``."""
    q, k, v = attention_inputs(case)
    o, lse = multi_head(q, k, v, dense, **case.options)
    return {"o": o, "lse": lse}


@lru_cache(maxsize=64)  # a second check asks for the same cases again
def honest(case: Case) -> list[dict[str, np.ndarray]]:
    q, k, v = attention_inputs(case)
    return honest_forward(q, k, v, case.options, case.dtype, ARITHMETIC[case.dtype])


def wrong(case: Case, variant: Variant) -> dict[str, np.ndarray]:
    """What a kernel with this mistake returns; ``{"stopped": tensors}`` where it reads outside one of them."""
    tensors = dict(zip("qkv", attention_inputs(case), strict=True))
    if variant.borrowed:
        name, owner, axes = variant.borrowed
        tensors[name] = read_with_strides_of(tensors, layouts_of(case), name, owner, axes)
        if tensors[name] is None:
            return {"stopped": (name,)}
    for name in variant.first[0] if variant.first else ():
        tensors[name] = first_along(tensors[name], variant.first[1])
    heads = case.sizes["H_q"], case.sizes["H_kv"]
    if variant.kv_head and any(variant.kv_head(h, *heads) >= heads[1] for h in range(heads[0])):
        return {"stopped": ("k", "v")}  # of the last batch; which of the two ends first depends on the layout
    options, steps = dict(case.options), replace(STEPS, **variant.steps)
    if variant.scale:
        options["scale"] = variant.scale(case.sizes["d"], case.sizes["d_v"], options["scale"])
    o, lse = multi_head(
        *tensors.values(),
        run=lambda problem: tiled(problem, steps),
        kv_head=variant.kv_head or kv_head,
        arithmetic=ARITHMETIC[case.dtype],
        **options,
    )
    return {"o": o, "lse": lse}


def first_along(x: np.ndarray, axis: int) -> np.ndarray:
    """x with the first entry along this axis in the place of all."""
    return np.broadcast_to(x.take([0], axis), x.shape)


def read_with_strides_of(tensors, layouts, name: str, owner: str, axes) -> np.ndarray | None:
    """The values a kernel sees in a tensor if it uses the owner's strides; None if some lie outside it."""
    x = tensors[name]
    own, lent = strides_of(x.shape, layouts[name]), strides_of(tensors[owner].shape, layouts[owner])
    used = tuple(lent[axis] if axis in axes and x.shape[axis] > 1 else own[axis] for axis in range(x.ndim))
    if used == own or max(own) > 2**29 or max(lent) > 2**29:
        return x if used == own else None
    memory = np.full(sum((n - 1) * s for n, s in zip(x.shape, own, strict=True)) + 1, np.nan)
    memory[_addresses(x.shape, own)] = x
    read = _addresses(x.shape, used)
    if read.max() >= len(memory) or np.isnan(memory[read]).any():
        return None
    return memory[read]


def _addresses(shape, strides) -> np.ndarray:
    return sum(
        np.arange(n).reshape([-1 if a == axis else 1 for a in range(len(shape))]) * s
        for axis, (n, s) in enumerate(zip(shape, strides, strict=True))
    )


def budget(case: Case) -> dict[str, int]:
    """Bytes a fused forward may request: Q and O once; K and V once a query tile, up to its last visible tile."""
    s, o, size = case.sizes, case.options, ITEMSIZE[case.dtype]
    keys = 0
    for start in range(0, s["N_q"], o["block_q"]):
        seen = min(s["N_k"], max(0, start + o["block_q"] + o["offset"])) if o["causal"] else s["N_k"]
        keys += min(s["N_k"], -(-seen // o["block_k"]) * o["block_k"])
    heads, rows = s["B"] * s["H_q"], s["N_q"]
    return {
        "q": heads * rows * s["d"] * size,
        "k": heads * keys * s["d"] * size,
        "v": heads * keys * s["d_v"] * size,
        "o": heads * rows * s["d_v"] * size,
        "lse": heads * rows * 4,
    }


def least(case: Case) -> dict[str, int]:
    """Bytes no right kernel can do without: rows of Q that see a key, keys that a row sees, all of the outputs."""
    s, o, size = case.sizes, case.options, ITEMSIZE[case.dtype]
    rows, keys = s["N_q"], s["N_k"]
    if o["causal"]:
        rows, keys = max(0, rows + min(0, o["offset"])), max(0, min(keys, rows + o["offset"]))
    return {
        "q": s["B"] * s["H_q"] * rows * s["d"] * size,
        "k": s["B"] * s["H_kv"] * keys * s["d"] * size,
        "v": s["B"] * s["H_kv"] * keys * s["d_v"] * size,
        "o": s["B"] * s["H_q"] * s["N_q"] * s["d_v"] * size,
        "lse": s["B"] * s["H_q"] * s["N_q"] * 4,
    }


def probe(case: Case) -> Case | None:
    """The same case with V the identity (d_v the next power of two), so that the output is P."""
    return replace(case, sizes={**case.sizes, "d_v": max(16, 1 << (case.sizes["N_k"] - 1).bit_length())}, identity=True)


def meter_says(case: Case, finding) -> str:
    """The named mistake behind a finding, where its coordinates leave no doubt; otherwise ""."""
    if finding.kind == "race":
        return "race"
    if finding.kind == "unwritten":
        first_of_tail = case.sizes["N_q"] // case.options["block_q"] * case.options["block_q"]
        row = finding.index[-1 if finding.tensor == "lse" else -2]
        return "query-tail-lost" if row >= first_of_tail else ""
    if finding.kind != "outside":
        return ""
    if finding.overflow:
        return "int32-overflow"
    return _row_past_the_end(case, finding)


def _row_past_the_end(case: Case, finding) -> str:
    """The tail mistake whose finding this is: only the row lies outside, by less than a tile."""
    s, o, stored = case.sizes, case.options, finding.access == "store"
    query_side = stored or finding.tensor == "q"
    rows, block = (s["N_q"], o["block_q"]) if query_side else (s["N_k"], o["block_k"])
    axis = len(finding.index) - (1 if stored and len(finding.index) in (1, 3) else 2)
    heads = (s["B"], s["H_q"] if query_side else s["H_kv"])[-axis:] if axis else ()
    if any(not 0 <= i < n for i, n in zip(finding.index, heads, strict=False)):
        return ""
    # Without a mask the first lane outside is the first element of the first row past the end; a wrong stride's is not.
    if finding.index[axis] != rows or rows % block == 0 or any(finding.index[axis + 1 :]):
        return ""
    if stored:
        return "tail-store-unmasked"
    return {"v": "v-tail-unmasked", "k": "tail-load-unmasked", "q": "tail-load-unmasked"}.get(finding.tensor, "")


def draw_like(cases: tuple[Case, ...], seed: int) -> tuple[Case, ...]:
    """Secret cases: the public kinds with other sizes and values. A diagonal that met a corner still does."""
    rng = np.random.default_rng(seed)
    return tuple(_jitter(case, rng) for case in cases)


def _jitter(case: Case, rng) -> Case:
    s, o = dict(case.sizes), dict(case.options)
    single_tile = s["N_q"] <= o["block_q"] and s["N_k"] <= o["block_k"]
    bottom_right = o["offset"] == s["N_k"] - s["N_q"]
    for name, block in (("N_q", o["block_q"]), ("N_k", o["block_k"])):
        if s[name] % block and s[name] > 1:  # on the tile and 1 stay what they are
            low = s[name] // block * block + 1
            s[name] = int(rng.integers(max(low, s[name] - 6), min(low + block - 1, s[name] + 6)))
    if bottom_right:
        o["offset"] = s["N_k"] - s["N_q"]
    elif o["causal"] and o["offset"] < 0:
        o["offset"] = -int(rng.integers(1, max(2, min(s["N_q"], s["N_k"]))))
    if case.values == "normal" and not single_tile:
        s["d_v"] = int(rng.choice([n for n in (16, 32, 64) if n != s["d"]])) if s["d_v"] != s["d"] else s["d_v"]
    return replace(case, sizes=s, options=o, seed=int(rng.integers(2**31)))


def exercise(id: str, *, dims: int, returns: tuple[str, ...], options: tuple[str, ...], cases, **rest) -> Exercise:
    """An attention exercise from what differs: 2-D or 4-D tensors, outputs, and which options are passed."""

    def pick(outputs):
        if "stopped" in outputs:
            return outputs
        return {name: outputs[name][0, 0] if dims == 2 else outputs[name] for name in returns}

    def call(case: Case) -> Call:
        tensors = dict(zip("qkv", attention_inputs(case), strict=True))
        layouts = layouts_of(case)
        s = case.sizes
        shape = (s["B"], s["H_q"], s["N_q"])
        shapes = {"o": ((*shape, s["d_v"])[4 - dims :], case.dtype), "lse": (shape, "fp32")}
        return Call(
            {n: Argument(x[0, 0] if dims == 2 else x, case.dtype, layouts[n]) for n, x in tensors.items()},
            {name: case.options[name] for name in options},
            tuple(Returned(name, *shapes[name]) for name in returns),
        )

    return Exercise(
        id=id,
        call=call,
        cases=tuple(replace(case, seed=100 + number) for number, case in enumerate(cases)),
        oracle=lambda case: pick(oracle(case)),
        honest=lambda case: [pick(run) for run in honest(case)],
        wrong=lambda case, variant: pick(wrong(case, variant)),
        draw=lambda seed: draw_like(cases, seed),
        budget=lambda case: {n: b for n, b in budget(case).items() if n in "qkv" or n in returns},
        least=lambda case: {n: b for n, b in least(case).items() if n in "qkv" or n in returns},
        probe=probe,
        meter_says=meter_says,
        **{"timed": timed.attention(timed.forward, *"qkv", dims=dims), **rest},
    )


# ---- the exercises --------------------------------------------------------------------------------------

HEADS_ONLY = (
    "gqa-head-map",
    "scale-argument-ignored",
    "borrowed-stride",
    "offset-forgotten",
    "int32-overflow",
    "lse-base-2",
    "lse-without-m",
)
CAUSAL_ONLY = (
    "causal-top-left",
    "causal-strict",
    "causal-offset-sign",
    "causal-local-index",
    "causal-ignored",
    "causal-bound-short",
    "empty-row-nan",
    "empty-row-division",
)
LOOP_ONLY = (
    "rescale-numerator-only", "rescale-denominator-only", "rescale-neither", "rescale-inverse", "own-max",
    "normalised-every-step", "key-tail-lost", "last-tile-twice", "first-tile-skipped", "query-tail-lost",
)  # fmt: skip

TILE = exercise(
    "03.tile",
    timed=timed.attention(timed.forward, *"qkv", dims=2, grown={}),
    dims=2,
    returns=("o",),
    options=("block_q", "block_k"),
    title="One tile of attention",
    points=10,
    minutes=15,
    difficulty=1,
    signature="attention_tile(q, k, v, block_q, block_k) -> o    # q (N_q, d), k (N_k, d), v (N_k, d_v), o (N_q, d_v)",
    cases=(
        attention_case("a full tile", 16, 16, 16, 16),
        attention_case("tails on both sides", 5, 13, 16, 32, d_v=32),
        attention_case("one query, one key", 1, 1, 16, 16),
        attention_case("scores that overflow exp", 11, 29, 16, 32, values="large"),
        attention_case("all scores far below zero", 7, 32, 16, 32, values="negative"),
        attention_case("far below zero, with a tail", 7, 23, 16, 32, values="negative"),
        attention_case("every score below any finite mask", 7, 19, 16, 32, values="trap"),
        attention_case("gaps between the rows", 13, 27, 16, 32, d=32, d_v=16, layout="padded"),
        attention_case("half precision", 21, 23, 32, 32, d_v=32, dtype="fp16"),
    ),
    faults=bank(*HEADS_ONLY, *CAUSAL_ONLY, *LOOP_ONLY, "low-precision-sum"),
    hints=(
        "Load Q, K and V with masks for the rows that exist, compute S = tl.dot(q, tl.trans(k)) * scale in fp32.",
        "Set the scores of keys past N_k to -inf, subtract the row maximum, then exp. Sum the weights in fp32.",
        "o = tl.dot(p.to(v.dtype), v) / l[:, None]. fp32 inputs want input_precision='ieee' in both dots.",
    ),
)

ROWS = exercise(
    "03.rows",
    dims=2,
    returns=("o",),
    options=("block_q", "block_k"),
    title="All tiles: online softmax and tails",
    points=25,
    minutes=30,
    difficulty=3,
    signature="attention_rows(q, k, v, block_q, block_k) -> o    # q (N_q, d), k (N_k, d), v (N_k, d_v), o (N_q, d_v)",
    cases=(
        attention_case("tiles fit exactly", 32, 64, 16, 32),
        attention_case("tails on both sides", 37, 53, 16, 32, d_v=32),
        attention_case("one query, one key", 1, 1, 16, 16),
        attention_case("sequence shorter than a tile", 7, 11, 32, 16),
        attention_case("every tile raises the maximum", 19, 61, 32, 16, values="rising"),
        attention_case("every tile lowers the maximum", 19, 61, 32, 16, values="falling"),
        attention_case("scores that overflow exp", 23, 47, 16, 16, values="large"),
        attention_case("all scores far below zero", 17, 64, 16, 32, values="negative"),
        attention_case("far below zero, with a tail", 11, 43, 16, 32, values="negative"),
        attention_case("the last key outweighs all others", 11, 45, 16, 16, values="peak"),
        attention_case("every score below any finite mask", 17, 43, 16, 32, values="trap"),
        attention_case("gaps between the rows of Q and V", 29, 45, 16, 32, d=32, d_v=16, layout="uneven"),
        attention_case("half precision", 41, 71, 32, 32, d_v=32, dtype="fp16"),
    ),
    faults=bank(*HEADS_ONLY, *CAUSAL_ONLY, "low-precision-sum"),
    hints=(
        "One program owns block_q rows of Q and loops over the key tiles. It carries m, l and acc.",
        (
            "m_new = max(m, rowmax(S)); alpha = exp(m - m_new); l and acc are both multiplied by alpha "
            "before the new tile is added."
        ),
        "Start with m = -inf, l = 0, acc = 0, and divide acc by l once, after the loop.",
    ),
)

CAUSAL = exercise(
    "03.causal",
    dims=2,
    returns=("o",),
    options=("offset", "block_q", "block_k"),
    title="Causal mask with an offset, and tiles that are never touched",
    points=25,
    minutes=25,
    difficulty=3,
    signature=(
        "attention_causal(q, k, v, offset, block_q, block_k) -> o    # key j is visible to query i iff j <= i + offset"
    ),
    cases=(
        attention_case("square, top-left", 48, 48, 16, 16, offset=0),
        attention_case("bottom-right, block_q larger", 40, 70, 32, 16, offset=30),
        attention_case("bottom-right, block_k larger", 35, 77, 16, 32, d_v=32, offset=42),
        attention_case("more keys than the diagonal reaches", 33, 90, 16, 32, offset=5),
        attention_case("rows that see no key", 45, 33, 16, 32, offset=-12),
        attention_case("rows past the last key see all", 45, 21, 16, 16, offset=1),
        attention_case("decode: one query sees every key", 1, 51, 16, 32, offset=50),
        attention_case("a hidden key with a huge score", 37, 37, 16, 16, values="peak", offset=0),
        attention_case("every tile raises the maximum", 39, 61, 32, 16, values="rising", offset=22),
        attention_case("every tile lowers the maximum", 39, 61, 16, 16, values="falling", offset=22),
        attention_case("every score below any finite mask", 27, 43, 16, 32, values="trap", offset=16),
        attention_case(
            "half precision, gaps between the rows of Q and V",
            41,
            71,
            32,
            32,
            d_v=32,
            dtype="fp16",
            layout="uneven",
            offset=30,
        ),
    ),
    faults=(*bank(*HEADS_ONLY, "low-precision-sum", "empty-row-nan", "empty-row-division"), EMPTY_ROW),
    hints=(
        (
            "Visible is a comparison of absolute positions: keys[None, :] <= rows[:, None] + offset. "
            "Apply it before the maximum."
        ),
        (
            "The loop of query tile i may stop after the last key that its last row sees; count that in "
            "tiles of block_k, rounded up."
        ),
        "With a negative offset some rows see nothing: their m stays -inf, so subtract 0 instead of m, and write 0.",
    ),
)

HARD_CASES = (  # of masks and of values, for every forward in heads
    attention_case("rows that see no key", 45, 33, 16, 32, offset=-12),
    attention_case("rows past the last key see all", 45, 21, 16, 16, offset=1),
    attention_case("a hidden key with a huge score", 37, 37, 16, 16, values="peak", offset=0),
    attention_case("every tile raises the maximum", 19, 61, 32, 16, values="rising"),
    attention_case("every tile lowers the maximum", 19, 61, 32, 16, values="falling"),
    attention_case("scores that overflow exp", 23, 47, 16, 16, values="large"),
    attention_case("all scores far below zero", 17, 43, 16, 32, values="negative"),
    attention_case("every score below any finite mask", 27, 43, 16, 32, values="trap", offset=16),
)
HEADS = exercise(
    "03.heads",
    dims=4,
    returns=("o", "lse"),
    options=("causal", "offset", "scale", "block_q", "block_k"),
    title="Batch, heads, grouped queries, strides and lse",
    points=40,
    gpu_points=10,
    gpu=timed.attention_cell(products=2),
    minutes=45,
    difficulty=4,
    signature=(
        "flash_forward(q, k, v, causal, offset, scale, block_q, block_k) -> (o, lse)"
        "    # q (B, H_q, N_q, d), k (B, H_kv, N_k, d), v (B, H_kv, N_k, d_v), o (B, H_q, N_q, d_v), "
        "lse (B, H_q, N_q) fp32"
    ),
    cases=(
        attention_case("tiles fit exactly", 32, 32, 16, 32, B=2, H_q=2, H_kv=2),
        attention_case(
            "tails on both sides, d_v != d, a scale of its own", 37, 53, 16, 32, d_v=32, H_q=2, H_kv=2, scale=0.4
        ),
        attention_case("four query heads share two", 17, 19, 16, 16, B=2, H_q=4, H_kv=2),
        attention_case(
            "six query heads share two, each tensor laid out its own way", 18, 18, 16, 16, H_q=6, H_kv=2, layout="mixed"
        ),
        attention_case(
            "heads as a model hands them over", 21, 35, 32, 16, B=2, H_q=2, H_kv=1, layout="bshd", offset=14
        ),
        attention_case("one query, one key", 1, 1, 16, 16),
        attention_case("causal, bottom-right, unequal tiles", 40, 70, 32, 16, d_v=32, offset=30),
        *HARD_CASES,
        attention_case(
            "half precision, gaps between rows, heads and batches",
            41,
            71,
            32,
            32,
            d=32,
            d_v=16,
            B=2,
            H_q=2,
            H_kv=1,
            dtype="fp16",
            layout="padded",
        ),
        attention_case("half precision, weights that round alike", 19, 75, 16, 32, values="alike", dtype="fp16"),
        attention_case("strides beyond 32 bits", 9, 17, 16, 16, B=3, layout="huge"),
    ),
    faults=bank(),
    hints=(
        (
            "One program a (query tile, batch, head). Find b and h from tl.program_id, and add b * "
            "stride_b + h * stride_h to each base pointer."
        ),
        (
            "Query head h reads K/V head h // (H_q // H_kv). Use each tensor's own strides, and cast b "
            "and h to tl.int64 before multiplying."
        ),
        (
            "lse = m + ln(l) of the scaled scores, -inf for a row that sees nothing. If you work in base "
            "2, multiply by ln 2 at the end."
        ),
    ),
)

EXERCISES = (TILE, ROWS, CAUSAL, HEADS)
