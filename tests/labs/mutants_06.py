"""Planted faults of lab 06: programs miscounted, tiles shared wrongly, and causal tiles that start in a bad order."""

# ruff: noqa: E501  one mutant a line

from __future__ import annotations

from tests.labs.mutant import Mutant


def mutant(exercise: str, fault: str, *patch: tuple[str, str], base: str = "solution", note: str = "") -> Mutant:
    return Mutant(fault, base, patch, f"06.{exercise}", note)


# ---- 06.grid and 06.order

PROGRAMS = "programs = B * H_q * -(-N_q // block_q)"
WAVES = "waves = -(-programs // sms)"
BUSY = "busy = programs / (waves * sms)"
LIST = "order = [(i, head) for i in reversed(range(query_tiles)) for head in range(heads)]"


def grid(fault: str, old: str, new: str, note: str = "") -> Mutant:
    return mutant("grid", fault, (old, new), note=note)


def order(fault: str, new: str, note: str = "") -> Mutant:
    return mutant("order", fault, (LIST, f"order = {new}"), note=note)


PAPER = (
    grid("heads-only-grid", PROGRAMS, "programs = B * H_q", "as the first FlashAttention was launched"),
    grid("heads-only-grid", PROGRAMS, "programs = H_q"),
    grid("batch-forgotten", PROGRAMS, "programs = H_q * -(-N_q // block_q)"),
    grid("batch-forgotten", PROGRAMS, "tiles = (N_q + block_q - 1) // block_q\n    programs = tiles * H_q"),
    grid("query-tail-lost", PROGRAMS, "programs = B * H_q * (N_q // block_q)"),
    grid("query-tail-lost", PROGRAMS, "programs = N_q // block_q * H_q * B"),
    grid("tail-over-all-heads", PROGRAMS, "programs = -(-B * H_q * N_q // block_q)"),
    grid("tail-over-all-heads", PROGRAMS, "programs = (B * H_q * N_q + block_q - 1) // block_q"),
    grid("last-wave-lost", WAVES, "waves = programs // sms or 1"),
    grid("last-wave-lost", WAVES, "waves = programs / sms", "a wave that is not full takes its time"),
    grid("last-wave-lost", WAVES, "waves = programs // sms + 1", "one more even where the last is full"),
    grid("busy-of-one-wave", BUSY, "busy = (programs % sms or sms) / sms", "the last wave alone"),
    grid("busy-of-one-wave", BUSY, "busy = min(1.0, programs / sms)"),
    grid("busy-of-one-wave", BUSY, "busy = 100 * programs / (waves * sms)", "per cent"),
    order("heads-only-grid", "[(query_tiles - 1, head) for head in range(heads)]"),
    order("heads-only-grid", "[(0, head) for head in range(heads)]"),
    order("order-naive", "[(i, head) for head in range(heads) for i in range(query_tiles)]", "head by head"),
    order("order-naive", "[(i, head) for i in range(query_tiles) for head in range(heads)]", "shortest first"),
    order("order-naive", "[(i, head) for head in range(heads) for i in reversed(range(query_tiles))]", "longest first in each head"),
    order("pair-swapped", "[(head, i) for i in reversed(range(query_tiles)) for head in range(heads)]"),
    order("pair-swapped", "[(head, i) for head in range(heads) for i in range(query_tiles)]"),
    order("counted-from-one", "[(i, head) for i in range(query_tiles, 0, -1) for head in range(heads)]"),
    order("counted-from-one", "[(i + 1, head + 1) for i in reversed(range(query_tiles)) for head in range(heads)]"),
    order("tile-never", "[(i, head) for i in range(query_tiles - 1, 0, -1) for head in range(heads)]"),
    order("tile-never", "[(i, head) for i in reversed(range(query_tiles - 1)) for head in range(heads)]", "the longest is lost"),
    order("tile-twice", "[(max(i, 0), head) for i in range(query_tiles - 1, -2, -1) for head in range(heads)]"),
    order("tile-twice", "[(min(i, query_tiles - 1), head) for i in range(query_tiles, -1, -1) for head in range(heads)]"),
)  # fmt: skip

# ---- 06.persistent

LOOP = "for n in range(tl.program_id(0), t * heads, tl.num_programs(0)):"
TILE = "        i = n % t\n"
BATCH = "b = (n // t // H_q).to(tl.int64)"
HEAD = "h = (n // t % H_q).to(tl.int64)"
TILES = "tiles = triton.cdiv(N_q, block_q) * B * H_q"
GRID = "grid = (min(sms, tiles),)"
G = "g = h // group"
COUNT = "t = tl.cdiv(N_q, block_q)  #"
OWN_HEADS = (
    (LOOP, "for head in range(tl.program_id(0), heads, tl.num_programs(0)):\n      for i in range(0, t):"),
    (TILE, ""), (BATCH, "b = (head // H_q).to(tl.int64)"), (HEAD, "h = (head % H_q).to(tl.int64)"),
)  # fmt: skip
CHUNK = "for n in range(first, first + share):"
SHARE = "share = tiles // programs + (p < tiles % programs).to(tl.int32)"
FIRST = "first = p * (tiles // programs) + tl.minimum(p, tiles % programs)"

PERSISTENT = (
    mutant("persistent", "heads-only-grid", *OWN_HEADS, (GRID, "grid = (B * H_q,)"), note="the grid of the first FlashAttention"),
    mutant("persistent", "heads-only-grid", *OWN_HEADS, note="sms programs, but heads are what they share"),
    mutant("persistent", "heads-only-grid", (LOOP, "for n in range(tl.program_id(0) * t * H_q, (tl.program_id(0) + 1) * t * H_q):"), (GRID, "grid = (B,)"), note="a program a sequence"),
    mutant("persistent", "not-persistent", (GRID, "grid = (tiles,)")),
    mutant("persistent", "not-persistent", (LOOP, "for n in range(tl.program_id(0), tl.program_id(0) + 1):"), (GRID, "grid = (tiles,)")),
    mutant("persistent", "not-persistent", (GRID, "grid = (min(4 * sms, tiles),)"), note="four programs a multiprocessor"),
    mutant("persistent", "too-few-programs", (GRID, "grid = (min(sms, B * H_q),)"), note="counted by heads"),
    mutant("persistent", "too-few-programs", (GRID, "grid = (sms // 2,)")),
    mutant("persistent", "uneven-share", (FIRST, "first = p * (tiles // programs)"), (SHARE, "share = tiles // programs\n    if p == programs - 1:\n        share = tiles - first"), base="06_persistent__chunks", note="the last takes the rest"),
    mutant("persistent", "uneven-share", (FIRST, "first = tl.where(p == 0, 0, p * (tiles // programs) + tiles % programs)"), (SHARE, "share = tl.where(p == 0, tiles // programs + tiles % programs, tiles // programs)"), base="06_persistent__chunks", note="the first takes the rest"),
    mutant("persistent", "tile-twice", (LOOP, "for n in range(0, t * heads):"), note="every program does all"),
    mutant("persistent", "tile-twice", (LOOP, "for n in range(tl.program_id(0), t * heads, max(1, tl.num_programs(0) - 1)):"), note="a stride that is one short"),
    mutant("persistent", "tile-twice", (LOOP, "for n in range(tl.program_id(0), t * heads):"), note="no stride"),
    mutant("persistent", "tile-twice", (CHUNK, "for n in range(first, tl.minimum(tiles, first + share + 1)):"), (FIRST, "first = p * tl.cdiv(tiles, programs)"), (SHARE, "share = tl.cdiv(tiles, programs)"), base="06_persistent__chunks", note="chunks that overlap"),
    mutant("persistent", "tile-never", (LOOP, "for n in range(tl.program_id(0), t * heads - 1, tl.num_programs(0)):")),
    mutant("persistent", "tile-never", (CHUNK, "for n in range(p * (tiles // programs), (p + 1) * (tiles // programs)):"), base="06_persistent__chunks", note="shares rounded down, nobody takes the rest"),
    mutant("persistent", "tile-never", (LOOP, "for n in range(tl.program_id(0), N_q // block_q * heads, tl.num_programs(0)):"), note="counted with whole tiles, split with all"),
    mutant("persistent", "wrong-split", (TILE, "        i = n // t\n"), (BATCH, "b = (n % t // H_q).to(tl.int64)"), (HEAD, "h = (n % t % H_q).to(tl.int64)"), note="division and remainder exchanged"),
    mutant("persistent", "wrong-split", (TILE, "        i = n % heads\n"), (BATCH, "b = (n // heads // H_q).to(tl.int64)"), (HEAD, "h = (n // heads % H_q).to(tl.int64)"), note="heads for tiles"),
    mutant("persistent", "wrong-split", (BATCH, "b = (n % heads // H_q).to(tl.int64)"), (HEAD, "h = (n % heads % H_q).to(tl.int64)"), note="both are remainders"),
    mutant("persistent", "wrong-split", (HEAD, "h = (n // t).to(tl.int64)"), note="the head is still counted over the batch"),
    mutant("persistent", "wrong-split", (BATCH, "b = (n // t // (heads // H_q)).to(tl.int64)"), (HEAD, "h = (n // t % (heads // H_q)).to(tl.int64)"), note="divided by B, not by H_q"),
    mutant("persistent", "not-persistent", (GRID, "grid = (2 * sms,)"), note="two programs a multiprocessor"),
    mutant("persistent", "tile-never", (TILE, "        i = n % t + 1\n"), note="tiles counted from 1"),
    mutant("persistent", "tile-never", (LOOP, "for n in range(tl.program_id(0), tl.program_id(0) + 1):"), note="one tile a program, and the grid is right"),
    mutant("persistent", "gqa-head-map", (G, "g = h")),
    mutant("persistent", "gqa-head-map", (G, "g = h % (H_q // group)")),
    mutant("persistent", "borrowed-stride", ("k_ptr + b * stride_kb + g * stride_kh", "k_ptr + b * stride_qb + g * stride_qh")),
    mutant("persistent", "borrowed-stride", ("v_ptr + b * stride_vb + g * stride_vh", "v_ptr + b * stride_kb + g * stride_kh")),
    mutant("persistent", "offset-forgotten", ("q_ptr + b * stride_qb", "q_ptr"), note="every sequence asks with the first one's queries"),
    mutant("persistent", "offset-forgotten", ("v_ptr + b * stride_vb + g * stride_vh", "v_ptr + b * stride_vb")),
    mutant("persistent", "offset-forgotten", *((f"{x}_ptr + b * stride_{x}b", f"{x}_ptr") for x in "kv")),
    mutant("persistent", "offset-forgotten", ("o_ptr + b * stride_ob", "o_ptr"), note="all sequences are written over the first"),
    mutant("persistent", "offset-forgotten", ("o_ptr + b * stride_ob + h * stride_oh", "o_ptr + b * stride_ob"), base="06_persistent__chunks"),
    mutant("persistent", "offset-forgotten", *((f"{x}_ptr + b * stride_{x}b", f"{x}_ptr") for x in "qkvo"), note="b is found, and used nowhere"),
    mutant("persistent", "query-tail-lost", (COUNT, "t = N_q // block_q  #")),
    mutant("persistent", "query-tail-lost", (COUNT, "t = max(1, N_q // block_q)  #"), (TILES, "tiles = max(1, N_q // block_q) * B * H_q")),
)  # fmt: skip

# ---- 06.causal

N = "n = tl.program_id(0)"
I = "i = t - 1 - n // heads"  # noqa: E741
B = "b = (n % heads // H_q).to(tl.int64)"
H = "h = (n % heads % H_q).to(tl.int64)"
CAUSAL_GRID = "grid = (triton.cdiv(N_q, block_q) * B * H_q,)"
END = "end = tl.minimum(N_k, tl.maximum(0, (i + 1) * block_q + offset))"
BY_HEAD = ((B, "b = (n // t // H_q).to(tl.int64)"), (H, "h = (n // t % H_q).to(tl.int64)"))
SNAKE_TURN = "        if turn % 2 == 1:\n            place = tl.num_programs(0) - 1 - place\n"
STRIDE = "for first in range(0, t * heads, tl.num_programs(0)):"

CAUSAL = (
    mutant("causal", "order-naive", (I, "i = n % t"), *BY_HEAD, note="head by head"),
    mutant("causal", "order-naive", (I, "i = n // heads"), note="the shortest first"),
    mutant("causal", "order-naive", (I, "i = t - 1 - n % t"), *BY_HEAD, note="longest first in each head, but head after head"),
    mutant("causal", "order-naive", (N, "i = tl.program_id(0)\n    head = tl.program_id(1)"), (I + "\n", "\n"), (B, "b = (head // H_q).to(tl.int64)"), (H, "h = (head % H_q).to(tl.int64)"), (CAUSAL_GRID, "grid = (triton.cdiv(N_q, block_q), B * H_q)"), note="the grid of lab 03"),
    mutant("causal", "order-naive", (I, "i = n % t"), *BY_HEAD, base="06_causal__counter", note="a counter, but head by head"),
    mutant("causal", "order-dealt", (SNAKE_TURN, ""), base="06_causal__snake", note="program 0 takes the longest of every round"),
    mutant("causal", "order-dealt", (SNAKE_TURN, ""), (I, "i = n % t"), *BY_HEAD, base="06_causal__snake", note="the persistent kernel of the exercise before, with a mask"),
    mutant("causal", "tiles-past-diagonal", (END, "end = N_k")),
    mutant("causal", "tiles-past-diagonal", (END, "end = N_k"), base="06_causal__counter"),
    mutant("causal", "heads-only-grid", (N, "head = tl.program_id(0)"), (I, "g = head"), (B, "b = (head // H_q).to(tl.int64)"), (H, "h = (head % H_q).to(tl.int64)"), ("    attend_causal_tile(\n", "    for i in range(0, t):\n      attend_causal_tile(\n"), (CAUSAL_GRID, "grid = (B * H_q,)")),
    mutant("causal", "heads-only-grid", (STRIDE, "for n in range(tl.program_id(0) * t, (tl.program_id(0) + 1) * t):"), (SNAKE_TURN, ""), ("        n = first + place\n", ""), (I, "i = n % t"), *BY_HEAD, ("grid = (min(sms, triton.cdiv(N_q, block_q) * B * H_q),)", "grid = (B * H_q,)"), base="06_causal__snake"),
    mutant("causal", "tile-twice", (CAUSAL_GRID, "grid = (triton.cdiv(N_q, block_q) * B * H_q + 1,)"), (N, "n = tl.minimum(tl.program_id(0), tl.num_programs(0) - 2)"), note="the last number again"),
    mutant("causal", "tile-twice", ("        n = tl.atomic_add(counter_ptr, 1)\n", "        n += 1\n"), base="06_causal__counter", note="the counter is asked once"),
    mutant("causal", "tile-never", (CAUSAL_GRID, "grid = (triton.cdiv(N_q, block_q) * B * H_q - 1,)")),
    mutant("causal", "tile-never", (I, "i = t - 2 - n // heads"), (CAUSAL_GRID, "grid = ((triton.cdiv(N_q, block_q) - 1) * B * H_q,)"), note="counted down from one too few"),
    mutant("causal", "tile-never", (I, "i = t - n // heads"), note="the last tile would be t - 1"),
    mutant("causal", "gqa-head-map", (G, "g = h")),
    mutant("causal", "gqa-head-map", (G, "g = h % (H_q // group)")),
    mutant("causal", "offset-forgotten", ("k_ptr + b * stride_kb + g * stride_kh", "k_ptr + b * stride_kb")),
    mutant("causal", "offset-forgotten", ("q_ptr + b * stride_qb + h * stride_qh", "q_ptr + b * stride_qb")),
    mutant("causal", "offset-forgotten", *((f"{x}_ptr + b * stride_{x}b", f"{x}_ptr") for x in "qkv"), note="inputs of the first sequence for all"),
    mutant("causal", "offset-forgotten", ("o_ptr + b * stride_ob + h * stride_oh", "o_ptr + b * stride_ob")),
    mutant("causal", "offset-forgotten", ("q_ptr + b * stride_qb", "q_ptr"), ("o_ptr + b * stride_ob", "o_ptr"), note="the query side"),
    mutant("causal", "offset-forgotten", ("o_ptr + b * stride_ob", "o_ptr"), base="06_causal__snake"),
    mutant("causal", "offset-forgotten", *((f" + {a} * stride_{x}h", "") for x, a in zip("qkvo", "hggh", strict=True)), base="06_causal__counter", note="heads nowhere"),
    mutant("causal", "wrong-split", (I, "i = t - 1 - n // t"), note="divided by the tiles of a head, the heads are the fast index"),
    mutant("causal", "wrong-split", (I, "i = t - 1 - n % t"), note="both are remainders"),
    mutant("causal", "wrong-split", (H, "h = (n % heads).to(tl.int64)"), note="the head is still counted over the batch"),
    mutant("causal", "query-tail-lost", ("t = tl.cdiv(N_q, block_q)", "t = N_q // block_q"), (CAUSAL_GRID, "grid = (N_q // block_q * B * H_q,)")),
    mutant("causal", "query-tail-lost", ("t = tl.cdiv(N_q, block_q)", "t = N_q // block_q"), base="06_causal__counter"),
)  # fmt: skip

MUTANTS = PAPER + PERSISTENT + CAUSAL

TWO_FAULTS = (
    mutant("persistent", "query-tail-lost + heads-only-grid", (COUNT, "t = N_q // block_q  #"), *OWN_HEADS),
    mutant("causal", "order-naive + query-tail-lost", (I, "i = n // heads"), ("t = tl.cdiv(N_q, block_q)", "t = N_q // block_q"), (CAUSAL_GRID, "grid = (N_q // block_q * B * H_q,)")),
)  # fmt: skip


def equivalent(exercise: str, fault: str, *patch: tuple[str, str], note: str, base: str = "solution") -> Mutant:
    return mutant(exercise, fault, *patch, base=base, note=note)


EQUIVALENT = (
    equivalent("persistent", "wrong-split", (TILE, "        i = n // heads\n"), (BATCH, "b = (n % heads // H_q).to(tl.int64)"), (HEAD, "h = (n % heads % H_q).to(tl.int64)"), note="heads as the fast index: another order of equal tiles"),
    equivalent("persistent", "wrong-split", (TILE, "        i = t - 1 - n % t\n"), note="from the last tile to the first"),
    equivalent("persistent", "tile-twice", (LOOP, "for n in range(t * heads - 1 - tl.program_id(0), -1, -tl.num_programs(0)):"), note="numbers from the last down"),
    equivalent("persistent", "tile-never", (GRID, "grid = (sms,)"), note="programs without a tile do nothing"),
    equivalent("causal", "wrong-split", (B, "b = (n % heads % (heads // H_q)).to(tl.int64)"), (H, "h = (n % heads // (heads // H_q)).to(tl.int64)"), note="the batch as the fast index"),
    equivalent("causal", "order-naive", (I, "i = (tl.num_programs(0) - 1 - n) // heads"), note="the same count from the other end"),
    equivalent("causal", "tile-twice", (N, "n = tl.num_programs(0) - 1 - tl.program_id(0)"), (I, "i = n // heads"), note="numbers from the last down"),
)  # fmt: skip
