"""Planted faults of lab 01: bytes miscounted, rows normalised wrongly, and three kernels that do not fit together."""

# ruff: noqa: E501  one mutant a line

from __future__ import annotations

from tests.labs.mutant import Mutant

INF = 'float("-inf")'


def mutant(exercise: str, fault: str, *patch: tuple[str, str], base: str = "solution", note: str = "") -> Mutant:
    return Mutant(fault, base, patch, f"01.{exercise}", note)


# ---- 01.naive_bytes and 01.flash_bytes

FOUR = "return 4 * N * N * itemsize"
TILES = "tiles = -(-N // block_q)"
SUM = "return (N * d + tiles * N * (d + d_v) + N * d_v) * itemsize"


def naive(fault: str, answer: str, note: str = "") -> Mutant:
    return mutant("naive_bytes", fault, (FOUR, f"return {answer}"), note=note)


def flash(fault: str, old: str, new: str, note: str = "") -> Mutant:
    return mutant("flash_bytes", fault, (old, new), note=note)


BYTES = (
    naive("itemsize-ignored", "4 * N * N * 2", "fp32 counted as fp16"),
    naive("itemsize-ignored", "4 * N * N", "elements, not bytes"),
    naive("itemsize-ignored", "16 * N * N", "all counted as fp32"),
    naive("p-read-forgotten", "3 * N * N * itemsize", "P V reads P too"),
    naive("p-read-forgotten", "(2 * N**2 + N**2) * itemsize", "S both ways, P written"),
    naive("written-only", "2 * N * N * itemsize"),
    naive("written-only", "sum(N * N * itemsize for matrix in 'SP')", "S and P once each"),
    naive("one-matrix", "N * N * itemsize"),
    naive("one-matrix", "N**2 * itemsize", "the size of S in memory"),
    naive("mib-for-bytes", "4 * N * N * itemsize / 2**20"),
    naive("mib-for-bytes", "4 * N * N * itemsize / 1e9", "decimal gigabytes"),
    flash("kv-once", TILES, "tiles = 1"),
    flash("kv-once", SUM, "return 2 * N * (d + d_v) * itemsize", "each tensor once"),
    flash("tail-tile-forgotten", TILES, "tiles = N // block_q"),
    flash("tail-tile-forgotten", TILES, "tiles = max(N // block_q, 1)"),
    flash("tail-tile-forgotten", TILES, "tiles = N / block_q", "part of a tile"),
    flash("v-forgotten", "(d + d_v) +", "d +", "only K again"),
    flash("v-forgotten", "(d + d_v) +", "d_v +", "only V again"),
    flash("o-forgotten", " + N * d_v) *", ") *"),
    flash("o-forgotten", SUM, "return N * (d + tiles * (d + d_v)) * itemsize"),
    flash("q-forgotten", "(N * d + tiles", "(tiles"),
    flash("q-forgotten", SUM, "return N * (tiles * (d + d_v) + d_v) * itemsize"),
    flash("d-for-d_v", SUM, "return (2 * N * d + tiles * 2 * N * d) * itemsize"),
    flash("d-for-d_v", TILES, f"d_v = d\n    {TILES}"),
    flash("itemsize-ignored", ") * itemsize", ") * 2"),
    flash("itemsize-ignored", ") * itemsize", ")"),
)

# ---- 01.softmax

LOAD = f"x = tl.load(x_ptr + row * stride_x + lanes, mask=lanes < columns, other={INF}).to(tl.float32)"
EXP = "P = tl.exp(x - tl.max(x, 0))"
STORE = "tl.store(y_ptr + row * stride_y + lanes, P / tl.sum(P, 0), mask=lanes < columns)"
GRID = "softmax_kernel[(rows,)]("


def softmax(fault: str, *patch: tuple[str, str], note: str = "") -> Mutant:
    return mutant("softmax", fault, *patch, note=note)


SOFTMAX = (
    softmax("no-max", (EXP, "P = tl.exp(x)")),
    softmax("no-max", (EXP, "P = tl.exp(x - 0.0 * tl.max(x, 0))")),
    softmax("max-from-zero", (EXP, "P = tl.exp(x - tl.maximum(tl.max(x, 0), 0.0))")),
    softmax("max-from-zero", (EXP, "P = tl.exp(x - tl.max(tl.maximum(x, 0.0), 0))")),
    softmax("tail-mask-missing", (f"other={INF}", "other=0.0")),
    softmax("tail-mask-missing", (EXP, f"x = tl.where(lanes < columns, x, 0.0)\n    {EXP}")),
    softmax("finite-mask-value", (f"other={INF}", "other=-1e9")),
    softmax("finite-mask-value", (f"other={INF}", "other=-1e6")),
    softmax("exp2-without-log2e", (EXP, "P = tl.exp2(x - tl.max(x, 0))")),
    softmax("exp2-without-log2e", (EXP, "m = tl.max(x, 0)\n    P = tl.exp2(x) * tl.exp2(-m) if block > 2048 else tl.exp2(x - m)")),
    softmax("division-forgotten", (" P / tl.sum(P, 0),", " P,")),
    softmax("division-forgotten", (STORE, "l = tl.sum(P, 0)\n    tl.store(y_ptr + row * stride_y + lanes, P, mask=lanes < columns)")),
    softmax("tail-load-unmasked", (LOAD, "x = tl.load(x_ptr + row * stride_x + lanes).to(tl.float32)")),
    softmax("tail-load-unmasked", ("mask=lanes < columns, other", "mask=lanes <= columns, other"), note="off by one"),
    softmax("tail-store-unmasked", (", mask=lanes < columns)\n\n", ")\n\n")),
    softmax("tail-store-unmasked", (STORE, STORE.replace("< columns", "<= columns")), note="off by one"),
    softmax("race", (GRID, "softmax_kernel[(rows, 2)](")),
    softmax("race", ("tl.store(y_ptr + row * stride_y", "tl.store(y_ptr + row // 2 * stride_y"), note="two rows to one place"),
)  # fmt: skip

# ---- 01.naive_attention

Q_I = "Q_i = tl.load(q_ptr + rows[:, None] * stride_qn + cols[None, :], mask=rows[:, None] < N_q, other=0.0)"
K_J = "K_j = tl.load(k_ptr + keys[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < N_k, other=0.0)"
V_J = "V_j = tl.load(v_ptr + keys[:, None] * stride_vn + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)"
P_IJ = "P = tl.load(p_ptr + rows[:, None] * stride_pn + keys[None, :], mask=inside, other=0.0)"
SCORES = 'S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale'
ROW = f"S = tl.load(s_ptr + row * stride_sn + keys, mask=keys < N_k, other={INF}).to(tl.float32)"
WEIGHTS = "P = tl.exp(S - tl.max(S, 0))"
STORE_P = "tl.store(p_ptr + row * stride_pn + keys, P / tl.sum(P, 0), mask=keys < N_k)"
STORE_O = "tl.store(o_ptr + rows[:, None] * stride_on + cols_v[None, :], acc, mask=rows[:, None] < N_q)"
VALUES_GRID = "values_grid = (triton.cdiv(N_q, block_q),)"


def attention(fault: str, *patch: tuple[str, str], note: str = "") -> Mutant:
    return mutant("naive_attention", fault, *patch, note=note)


ATTENTION = (
    attention("no-max", (WEIGHTS, "P = tl.exp(S)")),
    attention("max-from-zero", (WEIGHTS, "P = tl.exp(S - tl.maximum(tl.max(S, 0), 0.0))")),
    attention("tail-mask-missing", (ROW, ROW.replace(INF, "0.0"))),
    attention("tail-mask-missing", (WEIGHTS, f"S = tl.where(keys < N_k, S, 0.0)\n    {WEIGHTS}")),
    attention("exp2-without-log2e", (WEIGHTS, "P = tl.exp2(S - tl.max(S, 0))")),
    attention("scale-missing", (SCORES, SCORES.removesuffix(" * scale"))),
    attention("scale-missing", ("S, d**-0.5,", "S, 1.0,")),
    attention("scale-twice", (SCORES, SCORES + " * scale")),
    attention("scale-twice", (WEIGHTS, "P = tl.exp((S - tl.max(S, 0)) * scale)"),
              ("probabilities_kernel(s_ptr, p_ptr, N_k,", "probabilities_kernel(s_ptr, p_ptr, scale, N_k,"),
              ("(S, P, N_k,", "(S, P, d**-0.5, N_k,"), note="once in each of two kernels"),
    attention("scale-of-another-dimension", ("S, d**-0.5,", "S, d_v**-0.5,")),
    attention("scale-of-another-dimension", ("S, d**-0.5,", "S, d**0.5,"), note="multiplied by sqrt(d)"),
    attention("division-forgotten", (STORE_P, STORE_P.replace(" / tl.sum(P, 0)", ""))),
    attention("tail-load-unmasked", (Q_I, Q_I.replace(", mask=rows[:, None] < N_q, other=0.0", ""))),
    attention("tail-load-unmasked", (K_J, K_J.replace(", mask=keys[:, None] < N_k, other=0.0", ""))),
    attention("v-tail-unmasked", (V_J, V_J.replace(", mask=keys[:, None] < N_k, other=0.0", ""))),
    attention("v-tail-unmasked", (V_J, V_J.replace("< N_k", "<= N_k")), note="off by one"),
    attention("tail-store-unmasked", (STORE_O, STORE_O.replace(", mask=rows[:, None] < N_q", ""))),
    attention("tail-store-unmasked", (STORE_O, STORE_O.replace("< N_q", "<= N_q")), note="off by one"),
    attention("other-missing", (P_IJ, P_IJ.replace(", other=0.0", ""))),
    attention("other-missing", (V_J, V_J.replace(", other=0.0", ""))),
    attention("query-tail-lost", (VALUES_GRID, "values_grid = (max(1, N_q // block_q),)")),
    attention("query-tail-lost", (STORE_O, STORE_O.replace("< N_q", "< N_q // block_q * block_q"))),
    attention("race", (VALUES_GRID, "values_grid = (triton.cdiv(N_q, block_q), 2)")),
    attention("race", ("scores_grid = (triton.cdiv(N_q, block_q), triton.cdiv(N_k, block_k))", "scores_grid = (triton.cdiv(N_q, block_q), triton.cdiv(N_k, block_k), 2)"), note="every score stored by two programs"),
)  # fmt: skip

MUTANTS = BYTES + SOFTMAX + ATTENTION

# A row softmax whose load names no `other` has two: a GPU leaves anything there, and 0 would be a score.
TWO_FAULTS = (
    softmax("other-missing + tail-mask-missing", (f", other={INF})", ")")),
    softmax("other-missing + tail-mask-missing", (LOAD, LOAD.replace(f", other={INF}", "")), (EXP, f"P = tl.exp(x - tl.max(tl.where(lanes < columns, x, {INF}), 0))")),
    attention("other-missing + tail-mask-missing", (ROW, ROW.replace(f", other={INF}", ""))),
)  # fmt: skip
