"""Lab 07, (d) to (f): kernels for Hopper, in Triton with descriptors, CUDA C++ and Gluon; 07.descriptors to 07.gluon.

Triton's is judged anywhere. The others are compiled anywhere, for a fifth of their points; the rest needs a GPU.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from flashkit.exercises import descriptor_faults, flash_forward, rows, timed
from flashkit.exercises.contract import COMPILED_CODE, WITH_CODE, Case, CudaKernel, Exercise, Fault, MadeOf
from flashkit.exercises.flash_forward import HARD_CASES, attention_case
from flashkit.exercises.forward_faults import FAULT
from flashkit.exercises.rows import row_case
from flashkit.runtime.call import Call, Returned

# ---- (d) Triton with tensor descriptors -----------------------------------------------------------------


def _descriptor_meter_says(case: Case, finding) -> str:
    if finding.kind == "race" and finding.tensor in ("o", ""):
        return descriptor_faults.NEXT_HEAD.name
    return flash_forward.meter_says(case, finding)


def _half(why: str, N_q: int, N_k: int, block_q: int = 64, block_k: int = 64, d: int = 64, **rest) -> Case:
    return attention_case(why, N_q, N_k, block_q, block_k, d=d, dtype="fp16", **rest)


DESCRIPTORS = flash_forward.exercise(
    "07.descriptors",
    dims=4,
    returns=("o", "lse"),
    options=("causal", "offset", "scale", "block_q", "block_k"),
    title="The forward with tensor descriptors: TMA and wgmma from Triton",
    points=30,
    gpu_points=10,
    timed=timed.attention(timed.forward, "q", "k", "v"),
    gpu=timed.attention_cell(products=2, d=128, block=128),
    minutes=40,
    difficulty=3,
    signature=(
        "flash_descriptors(q, k, v, causal, offset, scale, block_q, block_k) -> (o, lse)    # q (B, H_q, N_q, d), "
        "k (B, H_kv, N_k, d), v (B, H_kv, N_k, d), o like q, lse (B, H_q, N_q) fp32; strides are multiples of 16 bytes"
    ),
    cases=(
        _half("half precision, tails, two heads share one", 100, 150, H_q=2),
        _half("half precision, causal, bottom-right, gaps between rows and heads", 70, 130, layout="padded", offset=60),
        attention_case("tiles fit exactly", 32, 32, 16, 32, B=2, H_q=2, H_kv=2),
        attention_case("tails on both sides, a scale of its own", 37, 53, 16, 32, H_q=2, H_kv=2, scale=0.4),
        attention_case("six query heads share two", 18, 19, 16, 16, B=2, H_q=6, H_kv=2),
        attention_case("heads as a model hands them over", 21, 35, 32, 16, B=2, H_q=2, layout="bshd", offset=14),
        attention_case("one query, one key", 1, 1, 16, 16),
        attention_case("causal, unequal tiles", 40, 70, 32, 16, offset=30),
        *HARD_CASES,
        attention_case("half precision, weights that round alike", 19, 75, 16, 32, values="alike", dtype="fp16"),
    ),
    faults=descriptor_faults.FAULTS,
    shares=WITH_CODE,
    made_of=MadeOf(copies="TMA", matrix="wgmma"),
    hints=(
        "TensorDescriptor(x, shape, strides, block) on the host: all four axes, and boxes of [1, 1, rows, d].",
        "In the kernel: q_desc.load([b, h, row, 0]).reshape(block_q, d), and o_desc.store([...], O.reshape(...)).",
        "What lies past the tensor's end loads as 0 and is not stored. A score of 0 is a score: the mask stays.",
    ),
)
DESCRIPTORS = replace(DESCRIPTORS, meter_says=_descriptor_meter_says)

# ---- (e) CUDA C++: a tile loop with two buffers ---------------------------------------------------------

TILE = 1024  # columns, as the exercise says
CP_CASES = tuple(
    replace(case, seed=720 + number, options={}, layout="padded" if number % 2 else "contiguous")
    for number, case in enumerate(
        (
            row_case("two whole tiles", 4, 2 * TILE),
            row_case("a short last tile", 5, 2 * TILE + 404),
            row_case("four columns", 3, 4),
            row_case("one tile, not full", 2, 700),
            row_case("later columns are larger", 4, 3 * TILE + 4, values="rising"),
            row_case("later columns are smaller", 4, 3 * TILE + 4, values="falling"),
            row_case("scores that overflow exp", 4, 1500, values="large"),
            row_case("all scores far below zero", 4, 1300, values="negative"),
        )
    )
)


def _draw_quads(seed: int) -> tuple[Case, ...]:
    """Other sizes and values; a row stays a whole number of 16-byte pieces."""
    drawn = rows.draw_like(CP_CASES, seed)
    return tuple(replace(c, sizes={**c.sizes, "columns": -(-c.sizes["columns"] // 4) * 4}) for c in drawn)


def _launch(case: Case, threads: int) -> dict[str, object]:
    x = np.zeros((1, 1), np.float32) if case.values == "timed" else rows.scores(case).astype(np.float32)
    return {"values": x, "gap": 24 * (case.layout == "padded"), "grid": case.sizes["rows"], "threads": threads}


def _folded(parts):
    """Softmax whose m and l were taken of these columns only: ``parts(x)`` is a list of slices, which may repeat."""

    def wrong(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            seen = np.concatenate([x[:, part] for part in parts(x)] or [x[:, :0]], axis=1)
            m = seen.max(axis=1, keepdims=True, initial=-np.inf)
            return np.exp(x - m) / np.exp(seen - m).sum(axis=1, keepdims=True)

    return wrong


def _tiles(x: np.ndarray) -> list[slice]:
    return [slice(start, min(start + TILE, x.shape[1])) for start in range(0, x.shape[1], TILE)]


CP_FAULTS = (
    Fault("last-tile-not-awaited", "the loop ends before the last tile is folded in",
          "The last tile has no successor to fetch, but it still has to arrive and be read.",
          (_folded(lambda x: _tiles(x)[:-1]),)),
    Fault("buffer-not-swapped", "every tile is read from the first buffer, so that every other tile is missed",
          "Tile j lies in buffer j % 2.",
          (_folded(lambda x: [t for t in _tiles(x)[::2] for _ in range(2)][: len(_tiles(x))]),)),
    Fault("first-tile-only", "only the first tile is ever fetched",
          "Before tile j is read, the copy of tile j + 1 should be on its way.",
          (_folded(lambda x: _tiles(x)[:1]), _folded(lambda x: _tiles(x)[:1] * len(_tiles(x))))),
    *(FAULT[n] for n in ("no-max", "max-from-zero", "exp2-without-log2e", "division-forgotten")),
)  # fmt: skip


def _cp_wrong(case: Case, variant) -> dict[str, np.ndarray]:
    return {"y": variant(rows.scores(case)) if callable(variant) else rows.wrong(case, variant)}


CP_ASYNC = Exercise(
    id="07.cp_async",
    title="A tile loop with two buffers in CUDA C++: cp.async",
    points=4,
    gpu_points=16,
    minutes=45,
    difficulty=4,
    signature="tile_softmax_cuda() -> (source, threads)    # the text of the kernel, and threads a block",
    call=lambda case: Call({}, {}, (Returned("source", (), "text"), Returned("threads", (), "number"))),
    oracle=lambda case: {"y": rows.oracle(case)},
    honest=lambda case: [{"y": y} for y in rows.honest(case)],
    wrong=_cp_wrong,
    cases=CP_CASES,
    draw=_draw_quads,
    faults=CP_FAULTS,
    budget=lambda case: {},
    shares=COMPILED_CODE,
    made_of=MadeOf(copies="cp.async"),
    cuda=CudaKernel(
        name="tile_softmax",
        archs=("90a", "80"),
        launch=_launch,
        timed=Case("timed", {"rows": 8192, "columns": 8192}, values="timed"),
        passes=2,
    ),
    hints=(
        "Commit a group for every tile, also for one that does not exist: then `wait_group 1` always means this tile.",
        "wait_group is a thread's own: __syncthreads() after it, before reading what other threads copied.",
        "And __syncthreads() after reading, before the next copy goes into the buffer that was just read.",
    ),
)

# ---- (f) Gluon ------------------------------------------------------------------------------------------

GLUON_CASES = (
    attention_case("d = 128, tails, two heads share one", 200, 300, 64, 128, d=128, H_q=2, dtype="fp16"),
    attention_case("d = 64", 130, 257, 64, 128, d=64, H_q=2, H_kv=2, dtype="fp16"),
    attention_case("tiles fit exactly", 256, 256, 64, 128, d=128, B=2, dtype="fp16"),
    attention_case("one query, one key", 1, 1, 64, 128, d=64, dtype="fp16"),
    attention_case("many key blocks", 64, 1025, 64, 128, d=128, dtype="fp16"),
)
CAUSAL_CASES = (
    attention_case("d = 128, causal, two heads share one", 200, 300, 64, 128, d=128, H_q=2, offset=100, dtype="fp16"),
    *GLUON_CASES[1:],
    attention_case("causal, square", 450, 450, 64, 128, d=64, B=2, H_q=2, offset=0, dtype="fp16"),
    attention_case("rows that see no key", 300, 250, 64, 128, d=64, offset=-77, dtype="fp16"),
    attention_case("the diagonal crosses two blocks", 130, 600, 64, 128, d=128, offset=433, dtype="fp16"),
    attention_case("decode: one query sees every key", 1, 1000, 64, 128, d=128, offset=999, dtype="fp16"),
)


def _unfused(q, k, v, scale, causal=False, offset=0):
    """o and lse from the whole matrix of scores; in fp32 it is what the others are compared with."""
    S = (q @ k.mT).float() * scale
    return torch.softmax(S, -1).to(v.dtype) @ v, torch.logsumexp(S, -1)


CELL = timed.attention_cell(products=2, B=1, H=16, N=8192, d=128)


def _gluon(id: str, function: str, workers: tuple[int, ...], cases=GLUON_CASES, causal=False, in_flight=0, **rest):
    options = ("causal", "offset", "scale") if causal else ("scale",)
    plain = flash_forward.exercise(
        id,
        dims=4,
        returns=("o", "lse"),
        options=options,
        cases=cases,
        faults=(),  # without a GPU nothing shows them; the simulator's exercises name what can go wrong
        signature=f"{function}(q, k, v, {', '.join(options)}) -> (o, lse)    # fp16 or bf16, d 64 or 128",
        shares=COMPILED_CODE,
        made_of=MadeOf("TMA", "wgmma", workers, in_flight),
        gpu=replace(CELL, peers={**CELL.peers, "unfused": _unfused}),
        timed=timed.attention(timed.forward, "q", "k", "v"),
        **rest,
    )
    return replace(plain, gluon=True)


WGMMA = _gluon(
    "07.wgmma",
    "gluon_wgmma",
    (),
    title="Gluon, step 1: TMA and wgmma by hand",
    points=4,
    gpu_points=16,
    minutes=40,
    difficulty=4,
    hints=(
        "One barrier a slot expects the bytes of K and of V: k_desc.block_type.nbytes + v_desc.block_type.nbytes.",
        "A slot's first use ends phase 0, its second phase 1, its third phase 0: j // stages & 1.",
        "V_j is a right factor as it lies in memory, K_j is one transposed: K_j.permute((1, 0)).",
    ),
)
PRODUCER = _gluon(
    "07.producer",
    "gluon_producer",
    (1,),
    title="Gluon, step 2: a warp that only copies",
    points=4,
    gpu_points=16,
    minutes=40,
    difficulty=4,
    hints=(
        "The producer waits for `empty`, the consumer for `full`. A new barrier lets phase 1 pass, not 0.",
        "The first role of gl.warp_specialize is the kernel's own warps; the two lists describe the workers only.",
        "Release K as soon as S is there: its slot can be filled while the softmax runs.",
    ),
)
CONSUMERS = _gluon(
    "07.consumers",
    "gluon_consumers",
    (4, 1),
    title="Gluon, step 3: two consumers",
    points=4,
    gpu_points=16,
    minutes=20,
    difficulty=3,
    hints=(
        "Each consumer has 64 rows of its own, and both read the same K and V.",
        "A slot is empty when both have released it: 2 arrivals. Q's slots have one reader each.",
        "65,536 registers for 12 warps: 240 a thread for the consumers, 24 for the producer.",
    ),
)
TWO_PRODUCTS = _gluon(
    "07.two_products",
    "gluon_two_products",
    (4, 1),
    in_flight=1,
    title="Gluon, step 4: two products in flight",
    points=4,
    gpu_points=16,
    minutes=40,
    difficulty=5,
    hints=(
        "Scores of block n + 1 first, then P V of block n: the first is needed first.",
        "warpgroup_mma_wait(1, deps=[S]) waits for all but the newest product, and gives S back.",
        "Keep the order: K is released after the first wait, V after the second, and acc is rescaled after it too.",
    ),
)
GLUON = _gluon(
    "07.gluon",
    "gluon_forward",
    (4, 1),
    cases=CAUSAL_CASES,
    causal=True,
    in_flight=1,
    title="Gluon, the whole: causal, any length, a plan of tiles",
    points=6,
    gpu_points=24,
    minutes=60,
    difficulty=5,
    hints=(
        "A consumer's last row is first_row + rows - 1, and it sees keys up to and with first_row + rows - 1 + offset.",
        "A block above a consumer's diagonal is still in the ring: wait for it, then release it.",
        "loads[0] is the program with the least work; heapq.heapreplace puts it back with more.",
    ),
)

EXERCISES = (DESCRIPTORS, CP_ASYNC, WGMMA, PRODUCER, CONSUMERS, TWO_PRODUCTS, GLUON)
