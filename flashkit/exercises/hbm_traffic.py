"""Lab 01: HBM traffic. Exercises 01.naive_bytes, 01.flash_bytes, 01.softmax and 01.naive_attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flashkit.exercises import flash_forward, rows, timed
from flashkit.exercises.contract import Case, Exercise, Fault, Timed
from flashkit.exercises.formula import formula
from flashkit.exercises.forward_faults import FAULT, Variant
from flashkit.exercises.inputs import ITEMSIZE
from flashkit.exercises.rows import row_case
from flashkit.runtime.call import Argument, Call, Returned
from reference import forward, traffic

# ---- (a) the bytes as formulas --------------------------------------------------------------------------


def _shape(case: Case) -> traffic.Shape:
    s = case.sizes
    d = s.get("d", 64)
    return traffic.Shape(s["N"], s["N"], d, s.get("d_v", d), s.get("block_q", 64), 64, s["itemsize"])


def _naive(case: Case) -> int:
    """Bytes of S and P alone: write S, read S, write P, read P."""
    return sum(entry.read + entry.written for entry in traffic.naive(_shape(case)) if entry.tensor in "sp")


def _flash(case: Case) -> int:
    """FlashAttention-2's order without lse, as inference runs it."""
    return sum(entry.read + entry.written for entry in traffic.fa2(_shape(case)) if entry.tensor != "lse")


def _draw_sizes(cases: tuple[Case, ...], seed: int) -> tuple[Case, ...]:
    rng = np.random.default_rng(seed)
    return tuple(replace(c, sizes={**c.sizes, "N": c.sizes["N"] + int(rng.integers(1, 64))}) for c in cases)


def _formula(id, answer, cases, faults, **rest) -> Exercise:
    """Bytes as a formula of the sizes; secret cases have other lengths."""
    return formula(id, answer, cases, faults, lambda seed: _draw_sizes(cases, seed), **rest)


NAIVE_BYTES = _formula(
    "01.naive_bytes",
    _naive,
    (
        Case("the chapter's example, fp16", {"N": 16384, "itemsize": 2}),
        Case("twice the length", {"N": 32768, "itemsize": 2}),
        Case("fp32", {"N": 1000, "itemsize": 4}),
        Case("one token", {"N": 1, "itemsize": 2}),
    ),
    (
        Fault("itemsize-ignored", "the itemsize is not the argument's", "How many bytes is one element of this dtype?",
              (lambda N, itemsize: 8 * N * N, lambda N, itemsize: 16 * N * N, lambda N, itemsize: 4 * N * N)),
        Fault("p-read-forgotten", "one of the four trips is missing, such as the read of P by P V",
              "S is written and read; P is written and read.", (lambda N, itemsize: 3 * N * N * itemsize,)),
        Fault("written-only", "only the writes, or only the reads, are counted",
              "A round trip is a write and a read.", (lambda N, itemsize: 2 * N * N * itemsize,)),
        Fault("one-matrix", "one trip of one matrix is counted", "How often is each of S and P moved?",
              (lambda N, itemsize: N * N * itemsize,)),
        Fault("mib-for-bytes", "the answer is in MiB or GiB", "Bytes are asked for.",
              (lambda N, itemsize: 4 * N * N * itemsize / 2**20, lambda N, itemsize: 4 * N * N * itemsize / 2**30,
               lambda N, itemsize: 4 * N * N * itemsize / 1e6, lambda N, itemsize: 4 * N * N * itemsize / 1e9)),
    ),
    title="Bytes of S and P in three-kernel attention",
    points=5,
    minutes=10,
    difficulty=1,
    signature="naive_bytes(N, itemsize) -> int    # bytes that S and P (N, N) of one head move through HBM",
    hints=(
        "Count the trips: which kernels write S, read S, write P, read P?",
        "Each trip moves N * N elements.",
        "Four trips of N * N * itemsize bytes.",
    ),
)  # fmt: skip


def _flash_wrong(k_trips=None, parts="qkvo", size=None, width=None):
    def bytes(N, d, d_v, block_q, itemsize):
        tiles = -(-N // block_q) if k_trips is None else k_trips(N, block_q)
        d_v = d if width == "d" else d_v
        each = {"q": N * d, "k": N * d * tiles, "v": N * d_v * tiles, "o": N * d_v}
        return sum(each[part] for part in parts) * (size or itemsize)

    return bytes


FLASH_BYTES = _formula(
    "01.flash_bytes",
    _flash,
    (
        Case("tiles fit", {"N": 4096, "d": 128, "d_v": 128, "block_q": 128, "itemsize": 2}),
        Case("a tail tile reads K and V too", {"N": 1000, "d": 64, "d_v": 32, "block_q": 128, "itemsize": 2}),
        Case("fp32", {"N": 777, "d": 16, "d_v": 64, "block_q": 32, "itemsize": 4}),
        Case("one tile", {"N": 16, "d": 64, "d_v": 64, "block_q": 64, "itemsize": 2}),
    ),
    (
        Fault("kv-once", "K and V are counted once", "Who reads K and V: the head, or every query tile?",
              (_flash_wrong(lambda N, b: 1),)),
        Fault("tail-tile-forgotten", "the last, partial query tile is not counted", "It reads all keys too: round up.",
              (_flash_wrong(lambda N, b: max(N // b, 1)), _flash_wrong(lambda N, b: N // b),
               _flash_wrong(lambda N, b: N / b))),
        Fault("v-forgotten", "only one of K and V is read again", "Both are needed for every score tile.",
              (_flash_wrong(parts="qko"), _flash_wrong(parts="qvo"))),
        Fault("o-forgotten", "the output is not counted", "What must be written at the end?",
              (_flash_wrong(parts="qkv"),)),
        Fault("q-forgotten", "Q is not counted", "Each query tile is read once.", (_flash_wrong(parts="kvo"),)),
        Fault("d-for-d_v", "V and O are counted with d columns", "V and O have d_v columns.",
              (_flash_wrong(width="d"),)),
        Fault("itemsize-ignored", "the itemsize is not the argument's", "How many bytes is one element of this dtype?",
              (_flash_wrong(size=2), _flash_wrong(size=4), _flash_wrong(size=1))),
    ),
    title="Bytes of FlashAttention's forward",
    points=5,
    minutes=10,
    difficulty=2,
    signature="flash_bytes(N, d, d_v, block_q, itemsize) -> int    # one head, query tiles of block_q rows, no lse",
    hints=(
        "Q is read once and O is written once.",
        "Every query tile reads all of K and all of V.",
        "There are ceil(N / block_q) query tiles, the last one may be partial.",
    ),
)  # fmt: skip

# ---- (b) row softmax ------------------------------------------------------------------------------------

ROW_FAULTS = tuple(rows.padded_either_way(FAULT[name]) for name in (
    "no-max", "max-from-zero", "tail-mask-missing", "finite-mask-value", "exp2-without-log2e", "division-forgotten",
    "tail-load-unmasked", "tail-store-unmasked", "other-missing", "race",
))  # fmt: skip


def row_meter_says(case: Case, finding) -> str:
    """A finding on x or the output: past the row's end it is a missing tail mask."""
    columns = case.sizes["columns"]
    if finding.kind == "outside" and len(finding.index) == 2 and finding.index[1] >= columns:
        return "tail-store-unmasked" if finding.access == "store" else "tail-load-unmasked"
    return "race" if finding.kind == "race" else ""


def softmax_exercise(id: str, cases, faults, loads: int, **rest) -> Exercise:
    """Row softmax of x ``(rows, columns)``; the row may be read ``loads`` times and is written once."""

    def call(case: Case) -> Call:
        x = rows.scores(case)
        options = {"block": case.options["block"]} if loads > 1 else {}
        return Call({"x": Argument(x, case.dtype, case.layout)}, options, (Returned("y", x.shape, case.dtype),))

    def budget(case: Case) -> dict[str, int]:
        size = case.sizes["rows"] * case.sizes["columns"] * ITEMSIZE[case.dtype]
        return {"x": loads * size, "y": size}

    return Exercise(
        id=id,
        call=call,
        oracle=lambda case: {"y": rows.oracle(case)},
        honest=lambda case: [{"y": y} for y in rows.honest(case)],
        wrong=lambda case, variant: {"y": (rows.wrong if loads == 1 else rows.wrong_two_passes)(case, *variant)},
        cases=tuple(replace(case, seed=300 + number) for number, case in enumerate(cases)),
        draw=lambda seed: rows.draw_like(cases, seed),
        faults=faults,
        budget=budget,
        meter_says=row_meter_says,
        timed=Timed(timed.ROWS, timed.rows, timed.row_tensors),
        **rest,
    )


SOFTMAX = softmax_exercise(
    "01.softmax",
    (
        row_case("rows that fill a power of two", 4, 64),
        row_case("a tail", 5, 77),
        row_case("one column", 3, 1),
        row_case("scores that overflow exp", 4, 100, values="large"),
        row_case("all scores far below zero", 4, 64, values="negative"),
        row_case("all scores far below zero, and a tail", 4, 50, values="negative"),
        row_case("every score below any finite mask", 3, 50, values="trap"),
        row_case("half precision, gaps between the rows", 6, 90, dtype="fp16", layout="padded"),
    ),
    ROW_FAULTS,
    loads=1,
    title="Row softmax: one read, one write",
    points=15,
    gpu_points=5,
    gpu=timed.softmax_cell(),
    minutes=20,
    difficulty=2,
    signature="row_softmax(x) -> y    # x, y (rows, columns); each row is read once and written once",
    hints=(
        "One program a row: a block of triton.next_power_of_2(columns) lanes holds the whole row.",
        "Mask the lanes past the row's end and let them hold -inf (other=-float('inf')).",
        "Keep the row in registers: subtract its maximum, exp, divide by the sum, all in fp32, then store.",
    ),
)

# ---- (c) naive attention in three kernels ---------------------------------------------------------------


def _naive_budget(case: Case) -> dict[str, int]:
    s, o = case.sizes, case.options
    shape = traffic.Shape(s["N_q"], s["N_k"], s["d"], s["d_v"], o["block_q"], o["block_k"], ITEMSIZE[case.dtype])
    moved = traffic.by_tensor(traffic.naive(shape))
    return {**{name: moved[name] for name in "qkvo"}, "*": moved["s"] + moved["p"]}


def _naive_wrong(case: Case, variant: tuple[Variant, int]) -> dict[str, np.ndarray]:
    """The mistake in three kernels: the softmax holds whole rows, padded to a power of two; S is in q's dtype."""
    variant, least = variant
    block = max(least, 1 << (case.sizes["N_k"] - 1).bit_length())
    stored = replace(variant, steps={"score": _stored_score, **variant.steps})
    return {"o": flash_forward.wrong(replace(case, options={**case.options, "block_k": block}), stored)["o"][0, 0]}


def _stored_score(tile: forward.Tile) -> np.ndarray:
    S = forward.score(tile)
    return S.astype(tile.problem.arithmetic.operand).astype(S.dtype)


# 1/d is left out: where no scale is passed it is the scale applied twice.
SCALE_OF_ANOTHER_DIMENSION = replace(
    FAULT["scale-of-another-dimension"],
    variants=(
        Variant(scale=lambda d, d_v, scale: 1 / np.sqrt(d_v)),
        Variant(scale=lambda d, d_v, scale: np.sqrt(d)),
    ),
)

NAIVE_ATTENTION = replace(
    flash_forward.exercise(
        "01.naive_attention",
        dims=2,
        timed=timed.attention(timed.naive, *"qkv", dims=2, grown=timed.SCORES),
        returns=("o",),
        options=("block_q", "block_k"),
        title="Naive attention in three kernels, metered to the ledger's byte",
        points=25,
        minutes=40,
        difficulty=3,
        signature="naive_attention(q, k, v, block_q, block_k) -> o    # S and P (N_q, N_k) in q's dtype, in memory",
        cases=(
            flash_forward.attention_case("tiles fit exactly", 32, 32, 16, 32),
            flash_forward.attention_case("tails on both sides", 37, 53, 16, 32, d_v=32),
            flash_forward.attention_case("one query, one key", 1, 1, 16, 16),
            flash_forward.attention_case("scores that overflow exp", 23, 47, 16, 16, values="large"),
            flash_forward.attention_case("all scores far below zero", 17, 64, 16, 32, values="negative"),
            flash_forward.attention_case("gaps between the rows", 29, 45, 16, 32, d=32, d_v=16, layout="padded"),
            flash_forward.attention_case("half precision", 41, 71, 32, 32, d_v=32, dtype="fp16"),
        ),
        faults=tuple(rows.padded_either_way(fault) for fault in (
            *(FAULT[name] for name in (
                "no-max", "max-from-zero", "tail-mask-missing", "exp2-without-log2e", "scale-missing", "scale-twice",
                "division-forgotten", "tail-load-unmasked", "v-tail-unmasked", "tail-store-unmasked", "other-missing",
                "query-tail-lost", "race",
            )),
            SCALE_OF_ANOTHER_DIMENSION,
        )),
        hints=(
            "Kernel 1 writes S = Q K^T * scale tile by tile; kernel 2 is your row softmax; kernel 3 accumulates P V.",
            "Allocate S and P with torch.empty in q's dtype. In kernel 3 a program owns block_q rows of O.",
            "Mask every load and store with the rows and columns that exist; masked lanes of P must be 0.",
        ),
    ),
    budget=_naive_budget,
    wrong=_naive_wrong,
)  # fmt: skip

EXERCISES = (NAIVE_BYTES, FLASH_BYTES, SOFTMAX, NAIVE_ATTENTION)
