"""Planted faults of lab 04: every named mistake of the backward in two spellings or kernel structures, and pairs."""

# ruff: noqa: E501  one mutant a line
from __future__ import annotations

from tests.labs.mutant import Mutant

# Lines of the solutions
P = "P = tl.where(visible, tl.exp2(S - lse_i[:, None]), 0.0)"
DS = "dS = P * (dP - D_i[:, None])"
SCORES = 'S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * (scale * LOG2E)'
LOG2E = "LOG2E: tl.constexpr = 1.4426950408889634"
DV = 'dV_j += tl.dot(tl.trans(P).to(dO_i.dtype), dO_i, input_precision="ieee")'
DK = 'dK_j += tl.dot(tl.trans(dS).to(Q_i.dtype), Q_i, input_precision="ieee")'
DQ = 'dQ_i += tl.dot(dS.to(K_j.dtype), K_j, input_precision="ieee")'
DIAGONAL = "visible = visible & (keys[None, :] <= rows[:, None] + offset)"
TAIL = "visible = keys[None, :] < N_k"
FIRST = "first = tl.maximum(0, j * block_k - offset) // block_q * block_q"
END = "end = tl.minimum(N_k, tl.maximum(0, (i + 1) * block_q + offset))"
QUERY_LOOP = "for start in range(first, N_q, block_q):"
KEY_LOOP = "for start in range(0, end, block_k):"
LOAD_Q = "tl.load(q_head + rows[:, None] * stride_qn + cols[None, :], mask=rows[:, None] < N_q, other=0.0)"
LOAD_DO = "tl.load(do_head + rows[:, None] * stride_don + cols_v[None, :], mask=rows[:, None] < N_q, other=0.0)"
LOAD_K = "tl.load(k_ptr + keys[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < N_k, other=0.0)"
LOAD_V = "tl.load(v_ptr + keys[:, None] * stride_vn + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)"
STORE_DK = "tl.store(dk_ptr + keys[:, None] * stride_dkn + cols[None, :], dK_j * scale, mask=keys[:, None] < N_k)"
STORE_DQ = "tl.store(dq_ptr + rows[:, None] * stride_dqn + cols[None, :], dQ_i * scale, mask=rows[:, None] < N_q)"
DKDV_GRID = "grid = (triton.cdiv(N_k, block_k), B * H_kv)"
DQ_GRID = "grid = (triton.cdiv(N_q, block_q), B * H_q)"
SUM = "D_i = tl.sum(O_i.to(tl.float32) * dO_i.to(tl.float32), 1)"
ROW_DOT_GRID = "grid = (triton.cdiv(N_q, block_q), B * H_q)\n    row_dot"
D_CALL = "D = row_dot(o, do, block_q)"
LSE = "lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)\n"
SAVE_ACC = (  # the forward also leaves acc, undivided, and the backward takes it for o
    ("q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale", "q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, acc_ptr, scale"),
    ("q, k, v, o, lse, scale, offset, H_q", "q, k, v, o, lse, acc, scale, offset, H_q"),
    (LSE, LSE + "    acc = torch.empty_like(o, dtype=torch.float32)\n"),
    ("ctx.save_for_backward(q, k, v, o, lse)", "ctx.save_for_backward(q, k, v, acc, lse)"),
)
# Lines of variants
T_DIAGONAL = "keys[:, None] <= rows[None, :] + offset"
T_START = "start = tl.maximum(0, j * block_k - offset) // block_q"
R_HIDDEN = "hidden = hidden | (keys[None, :] - rows[:, None] > offset)"
E_DIAGONAL = "keys[:, None] - offset <= rows[None, :]"
E_TILES = "tl.maximum(0, first_row + block_q + offset + block_k - 1) // block_k"
E_DS = 'dS_T = P_T * (tl.dot(V_j, tl.trans(dO_i), input_precision="ieee") - D_i[None, :]) * scale'
INF = 'float("-inf")'


def mutant(
    fault: str, base: str, *patch: tuple[str, str], on: str = "04.dkdv", note: str = "", unnamed: str = ""
) -> Mutant:
    return Mutant(fault, base, patch, on, note, unnamed)


def in_dq(fault: str, base: str, *patch: tuple[str, str], note: str = "", unnamed: str = "") -> Mutant:
    return mutant(fault, base, *patch, on="04.dq", note=note, unnamed=unnamed)


def in_row_dot(fault: str, *patch: tuple[str, str], base: str = "solution", note: str = "") -> Mutant:
    return mutant(fault, base, *patch, on="04.row_dot", note=note)


def in_attention(fault: str, base: str, *patch: tuple[str, str], note: str = "", unnamed: str = "") -> Mutant:
    return mutant(fault, base, *patch, on="04.attention", note=note, unnamed=unnamed)


MUTANTS = (
    # ---- D
    mutant("d-missing", "solution", (DS, "dS = P * dP")),
    in_dq("d-missing", "dq_exp2", (" - D_i[None, :]) * scale", ") * scale")),
    mutant("d-added", "solution", (DS, DS.replace("-", "+"))),
    in_dq("d-added", "dq_exp2", (E_DS, E_DS.replace("- D_i", "+ D_i"))),
    in_attention("d-missing", "attention_one_kernel", (" - D_i[:, None])", ")")),
    in_attention("d-unnormalised", "solution", *SAVE_ACC, ("tl.store(lse_ptr + rows, lse, mask=rows < N_q)\n",
                 "tl.store(lse_ptr + rows, lse, mask=rows < N_q)\n    at = ((b * H_q + h) * N_q + rows[:, None]) * d_v + cols_v[None, :]\n    tl.store(acc_ptr + at, acc, mask=rows[:, None] < N_q)\n"),
                 ("    return o, lse\n", "    return o, lse, acc\n"), ("o, lse = flash_forward(q", "o, lse, acc = flash_forward(q")),
    in_attention("d-unnormalised", "attention_fused_d", *SAVE_ACC[:2], (LSE, LSE + "        acc = torch.empty_like(o, dtype=torch.float32)\n"), SAVE_ACC[3], ("    l_or_1 = tl.where(l == 0.0, 1.0, l)\n",
                 "    l_or_1 = tl.where(l == 0.0, 1.0, l)\n    tl.store(acc_ptr + (bh * N_q + rows[:, None]) * d_v + cols_v[None, :], acc, mask=rows[:, None] < N_q)\n")),
    in_row_dot("d-in-fp16", (SUM, "D_i = tl.sum((O_i * dO_i).to(tl.float16).to(tl.float32), 1)"), note="products in fp16"),
    in_row_dot("d-in-fp16", (SUM, SUM + ".to(tl.float16)")),
    in_attention("d-in-fp16", "solution", ("tl.store(D_ptr + (b * H_q + h) * N_q + rows, D_i,", "tl.store(D_ptr + (b * H_q + h) * N_q + rows, D_i.to(tl.float16),"), unnamed="rounding alone: no oracle rounds as this kernel does"),
    in_attention("d-in-fp16", "solution", ("D = torch.empty((B, H_q, N_q), dtype=torch.float32, device=o.device)", "D = torch.empty((B, H_q, N_q), dtype=torch.float16, device=o.device)"), unnamed="rounding alone: no oracle rounds as this kernel does"),
    in_row_dot("d-one-factor", (SUM, "D_i = tl.sum(dO_i.to(tl.float32), 1)")),
    in_row_dot("d-one-factor", (SUM, "D_i = tl.sum(O_i.to(tl.float32) * O_i.to(tl.float32), 1)")),
    in_attention("d-one-factor", "solution", (D_CALL, "D = row_dot(do, do, block_q)")),
    in_row_dot("d-mean", (SUM, SUM + " / d_v")),
    in_row_dot("d-mean", ("tl.sum(o * do, 0)", "tl.sum(o * do, 0) / d_v"), base="04_row_dot__one_program_a_row"),
    # ---- P and dS
    mutant("p-unnormalised", "solution", (P, P.replace(" - lse_i[:, None]", ""))),
    in_dq("p-unnormalised", "solution", (P, P.replace("lse_i", "tl.max(tl.where(visible, S, -1e30), 1)"))),
    in_attention("p-unnormalised", "solution", ("m + tl.log(l_or_1))", "m)"), note="the forward saves the maximum only"),
    mutant("lse-base", "solution", (LOG2E, "LOG2E: tl.constexpr = 1.0")),
    mutant("lse-base", "dkdv_transposed", ("scale * 1.4426950408889634, offset", "scale, offset")),
    in_dq("lse-base", "dq_exp2", ("other=0.0) * 1.4426950408889634\n", "other=0.0)\n")),
    in_attention("lse-base", "solution", ("m + tl.log(l_or_1))", "(m + tl.log(l_or_1)) * 1.4426950408889634)"), note="the forward saves base 2", unnamed="overflows where the oracle does not"),
    mutant("ds-without-p", "solution", (DS, "dS = dP - D_i[:, None]")),
    in_dq("ds-without-p", "dq_exp2", ("dS_T = P_T * (tl.dot", "dS_T = (tl.dot")),
    mutant("d-outside-p", "solution", (DS, "dS = P * dP - D_i[:, None]")),
    in_dq("d-outside-p", "solution", (DS, "dS = P * dP - D_i[:, None]")),
    mutant("ds-is-p", "solution", (DK, DK.replace("dS", "P"))),
    in_dq("ds-is-p", "solution", (DQ, DQ.replace("dS", "P"))),
    mutant("empty-row-nan", "solution", (P, f"P = tl.exp2(tl.where(visible, S, {INF}) - lse_i[:, None])")),
    in_dq("empty-row-nan", "dq_exp2", (f"lse_2 = tl.where(lse_2 > {INF}, lse_2, 0.0)", "lse_2 = lse_2 + 0.0")),
    in_dq("tail-mask-missing", "solution", (TAIL, "visible = keys[None, :] >= 0")),
    in_dq("tail-mask-missing", "dq_exp2", (f"        S_T = tl.where(keys[:, None] < N_k, S_T, {INF})\n", "")),
    # ---- scale
    mutant("scale-missing-scores", "solution", (SCORES, SCORES.replace("scale * LOG2E", "LOG2E"))),
    in_dq("scale-missing-scores", "dq_exp2", ("(scale * 1.4426950408889634)", "1.4426950408889634"), unnamed="overflows where the oracle does not"),
    mutant("scale-missing-dk", "solution", ("dK_j * scale", "dK_j")),
    mutant("scale-missing-dk", "dkdv_transposed", ("dK_j * scale", "dK_j")),
    in_attention("scale-missing-dk", "solution", ("dK_j * scale", "dK_j")),
    in_dq("scale-missing-dq", "solution", ("dQ_i * scale", "dQ_i")),
    in_dq("scale-missing-dq", "dq_exp2", (E_DS, E_DS.removesuffix(" * scale"))),
    in_attention("scale-missing-dq", "solution", ("dQ_i * scale", "dQ_i")),
    in_attention("scale-missing-gradients", "solution", ("dQ_i * scale", "dQ_i"), ("dK_j * scale", "dK_j")),
    in_attention("scale-missing-gradients", "attention_fused_d", ("dQ_i * scale", "dQ_i"), ("dK_j * scale", "dK_j")),
    mutant("scale-twice-dk", "solution", (DS, DS + " * scale")),
    mutant("scale-twice-dk", "dkdv_queries_outside", ("dK_j.to(dk_ptr.dtype.element_ty)", "(dK_j * scale).to(dk_ptr.dtype.element_ty)")),
    in_dq("scale-twice-dq", "solution", (DS, DS + " * scale")),
    in_dq("scale-twice-dq", "dq_exp2", ("dQ_i.to(dq_ptr.dtype.element_ty)", "(dQ_i * scale).to(dq_ptr.dtype.element_ty)")),
    in_attention("scale-twice-gradients", "attention_one_kernel", (" - D_i[:, None])", " - D_i[:, None]) * scale")),
    in_attention("scale-twice-gradients", "solution", ("dQ_i * scale", "dQ_i * scale * scale"), ("dK_j * scale", "dK_j * scale * scale")),
    mutant("scale-argument-ignored", "solution", ("dk, dv, scale, offset, H_kv", "dk, dv, d**-0.5, offset, H_kv")),
    in_dq("scale-argument-ignored", "dq_exp2", ("D, dq, scale,", "D, dq, d**-0.5,")),
    # ---- products
    mutant("dv-not-transposed", "solution", (DV, DV.replace("tl.trans(P)", "P"))),
    mutant("dv-not-transposed", "dkdv_transposed", ("P_T.to(dO_i.dtype)", "tl.trans(P_T).to(dO_i.dtype)"), note="transposed once too often"),
    mutant("dk-not-transposed", "solution", (DK, DK.replace("tl.trans(dS)", "dS"))),
    mutant("dk-not-transposed", "dkdv_transposed", ("dS_T.to(Q_i.dtype)", "tl.trans(dS_T).to(Q_i.dtype)")),
    mutant("dkdv-last-tile", "solution", (DV, DV.replace("+=", "=")), (DK, DK.replace("+=", "="))),
    mutant("dkdv-last-tile", "solution", (DK, DK.replace("+=", "=")), note="dK alone"),
    mutant("dkdv-last-tile", "dkdv_transposed", ("acc=dV_j", "acc=tl.zeros((block_k, d_v), tl.float32)"), note="dV alone"),
    in_dq("dq-last-tile", "solution", (DQ, DQ.replace("+=", "="))),
    in_dq("dq-last-tile", "solution", (DQ, DQ + "\n        tl.store(dq_ptr + rows[:, None] * stride_dqn + cols[None, :], dQ_i * scale, mask=rows[:, None] < N_q)\n        dQ_i = tl.zeros((block_q, d), tl.float32)"),
          (f"\n    {STORE_DQ}", ""), note="each tile overwrites the one before"),
    # ---- causal
    mutant("causal-ignored", "solution", (DIAGONAL, "visible = visible & (keys[None, :] >= 0)"), (FIRST, "first = 0")),
    mutant("causal-ignored", "dkdv_queries_outside", (R_HIDDEN, "hidden = hidden | (keys[None, :] < 0)"), note="the loop still starts late"),
    in_dq("causal-ignored", "solution", (DIAGONAL, "visible = visible & (keys[None, :] >= 0)")),
    in_dq("causal-ignored", "dq_exp2", (E_DIAGONAL, "keys[:, None] >= 0"), (E_TILES, "tiles")),
    in_attention("causal-ignored", "solution", ("*ctx.options)\n        dq", "False, *ctx.options[1:])\n        dq"), note="dK and dV alone"),
    mutant("causal-always", "solution", ("            if causal:\n                visible", "            if True:\n                visible")),
    in_dq("causal-always", "solution", ("        if causal:\n            visible", "        if True:\n            visible")),
    in_attention("causal-always", "solution", ("dq = query_gradient(q, k, v, do, lse, D, *ctx.options)", "dq = query_gradient(q, k, v, do, lse, D, True, *ctx.options[1:])")),
    mutant("causal-top-left", "solution", (DIAGONAL, DIAGONAL.replace(" + offset", ""))),
    in_dq("causal-top-left", "dq_exp2", (E_DIAGONAL, E_DIAGONAL.replace(" - offset", ""))),
    mutant("causal-strict", "solution", (DIAGONAL, DIAGONAL.replace("<=", "<"))),
    mutant("causal-strict", "dkdv_queries_outside", ("> offset", ">= offset")),
    in_dq("causal-strict", "solution", (DIAGONAL, DIAGONAL.replace("<=", "<"))),
    mutant("causal-offset-sign", "solution", (DIAGONAL, DIAGONAL.replace("+ offset", "- offset"))),
    in_dq("causal-offset-sign", "dq_exp2", (E_DIAGONAL, E_DIAGONAL.replace("- offset", "+ offset"))),
    mutant("causal-transposed", "dkdv_transposed", (T_DIAGONAL, "rows[None, :] <= keys[:, None] + offset"), (T_START, "start = 0")),
    in_dq("causal-transposed", "solution", (DIAGONAL, DIAGONAL.replace("keys[None, :] <= rows[:, None] + offset", "keys[None, :] >= rows[:, None] + offset")), (END, "end = N_k")),
    mutant("causal-local-index", "solution", (DIAGONAL, DIAGONAL.replace("keys", "tl.arange(0, block_k)"))),
    in_dq("causal-local-index", "solution", (DIAGONAL, DIAGONAL.replace("rows", "tl.arange(0, block_q)"))),
    mutant("causal-start-late", "solution", (FIRST, FIRST.replace("j * block_k - offset", "(j + 1) * block_k - 1 - offset")), note="the tile's last key"),
    mutant("causal-start-late", "solution", (FIRST, FIRST.replace(" - offset", "")), note="the offset forgotten"),
    mutant("causal-start-late", "dkdv_transposed", (T_START, "start = tl.cdiv(tl.maximum(0, j * block_k - offset), block_q)"), note="rounded up"),
    in_dq("causal-bound-short", "solution", (END, END.replace("(i + 1) * block_q", "i * block_q"))),
    in_dq("causal-bound-short", "dq_exp2", (E_TILES, "tl.maximum(0, first_row + block_q + offset) // block_k"), note="rounded down"),
    # ---- loops and heads
    mutant("query-tile-skipped", "solution", (QUERY_LOOP, "for start in range(first, N_q // block_q * block_q, block_q):")),
    mutant("query-tile-skipped", "dkdv_queries_outside", ("range(0, last - first)", "range(0, last - first - 1)")),
    in_dq("key-tile-skipped", "solution", (KEY_LOOP, "for start in range(block_k, end, block_k):")),
    in_dq("key-tile-skipped", "dq_exp2", ("tiles = tl.cdiv(N_k, block_k)", "tiles = N_k // block_k")),
    mutant("gqa-not-summed", "solution", ("for r in range(0, group):", "for r in range(0, 1):"), note="the first head of the group"),
    mutant("gqa-not-summed", "solution", ("h = g * group + r\n", "h = g * group + r\n        dK_j = tl.zeros((block_k, d), tl.float32)\n        dV_j = tl.zeros((block_k, d_v), tl.float32)\n"), note="the last head of the group"),
    mutant("gqa-not-summed", "solution", (DKDV_GRID, "grid = (triton.cdiv(N_k, block_k), B * H_q)"), ("    g = (tl.program_id(1) % H_kv).to(tl.int64)", "    head = (tl.program_id(1) % (H_kv * group)).to(tl.int64)\n    g = head // group"),
           ("b = (tl.program_id(1) // H_kv)", "b = (tl.program_id(1) // (H_kv * group))"), ("for r in range(0, group):\n        h = g * group + r", "for r in range(0, 1):\n        h = head"), note="a program a query head: a race"),
    mutant("gqa-head-map", "solution", ("h = g * group + r", "h = r * H_kv + g")),
    in_dq("gqa-head-map", "solution", ("g = h // group", "g = h % (H_q // group)")),
    in_dq("gqa-head-map", "dq_exp2", ("v_ptr += b * stride_vb + (h // group)", "v_ptr += b * stride_vb + (h % (tl.num_programs(1) // group))"), ("k_ptr += b * stride_kb + (h // group)", "k_ptr += b * stride_kb + (h % (tl.num_programs(1) // group))")),
    # ---- addresses
    in_row_dot("do-contiguous", ("*o.stride()[:3], *do.stride()[:3]", "*o.stride()[:3], *o.stride()[:3]")),
    mutant("do-contiguous", "solution", ("*v.stride()[:3], *do.stride()[:3]", "*v.stride()[:3], H_q * N_q * d_v, N_q * d_v, d_v")),
    in_attention("do-contiguous", "attention_one_kernel", ("do.contiguous()", "do")),
    in_attention("do-contiguous", "attention_fused_d", ("        do = do.contiguous()\n", "")),
    mutant("borrowed-stride", "solution", ("*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do", "*q.stride()[:3], *k.stride()[:3], *k.stride()[:3], *do")),
    in_dq("borrowed-stride", "solution", ("*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do", "*q.stride()[:3], *q.stride()[:3], *v.stride()[:3], *do")),
    mutant("tail-load-unmasked", "solution", (LOAD_Q, LOAD_Q.split(", mask")[0] + ")")),
    in_dq("tail-load-unmasked", "solution", (LOAD_V, LOAD_V.split(", mask")[0] + ")")),
    in_row_dot("tail-load-unmasked", ("O_i = tl.load(o_ptr + rows[:, None] * stride_on + cols[None, :], mask=rows[:, None] < N_q, other=0.0)\n    dO", "O_i = tl.load(o_ptr + rows[:, None] * stride_on + cols[None, :])\n    dO")),
    mutant("tail-store-unmasked", "solution", (STORE_DK, STORE_DK.split(", mask")[0] + ")")),
    in_dq("tail-store-unmasked", "solution", (STORE_DQ, STORE_DQ.split(", mask")[0] + ")")),
    mutant("other-missing", "solution", (LOAD_DO, LOAD_DO.replace(", other=0.0", ""))),
    in_dq("other-missing", "solution", (LOAD_K, LOAD_K.replace(", other=0.0", ""))),
    mutant("int32-overflow", "solution", ("b = (tl.program_id(1) // H_kv).to(tl.int64)", "b = tl.program_id(1) // H_kv")),
    in_dq("int32-overflow", "dq_exp2", ("b = tl.program_id(0).to(tl.int64)", "b = tl.program_id(0)")),
    in_row_dot("query-tail-lost", (ROW_DOT_GRID, ROW_DOT_GRID.replace("triton.cdiv(N_q, block_q)", "max(1, N_q // block_q)"))),
    in_dq("query-tail-lost", "solution", (DQ_GRID, "grid = (max(1, N_q // block_q), B * H_q)")),
    mutant("key-tail-lost", "solution", (DKDV_GRID, "grid = (max(1, N_k // block_k), B * H_kv)")),
    mutant("key-tail-lost", "dkdv_queries_outside", ("triton.cdiv(N_k, block_k)", "N_k // block_k or 1")),
    in_attention("preprocess-tile", "solution", ("grid = (triton.cdiv(N_q, block_q), B * H_q)\n    row_dot_kernel", "grid = (triton.cdiv(N_q, 2 * block_q), B * H_q)\n    row_dot_kernel")),
    in_attention("preprocess-tile", "solution", ("rows = tl.program_id(0) * block_q + tl.arange(0, block_q)\n    cols = tl.arange(0, d_v)", "rows = tl.program_id(0) * 16 + tl.arange(0, 16)\n    cols = tl.arange(0, d_v)"),
                 ("grid = (triton.cdiv(N_q, block_q), B * H_q)\n    row_dot_kernel", "grid = (triton.cdiv(N_q, 2 * block_q), B * H_q)\n    row_dot_kernel"), note="a tile of 16 in the kernel, another in the grid"),
    in_dq("dq-race", "solution", (KEY_LOOP, "for start in range(tl.program_id(2) * block_k, tl.minimum(end, (tl.program_id(2) + 1) * block_k), block_k):"),
          (DQ_GRID, "grid = (triton.cdiv(N_q, block_q), B * H_q, triton.cdiv(N_k, block_k))"),
          (STORE_DQ, "dq_tile = dq_ptr + rows[:, None] * stride_dqn + cols[None, :]\n    old = tl.load(dq_tile, mask=rows[:, None] < N_q, other=0.0)\n    tl.store(dq_tile, old + dQ_i * scale, mask=rows[:, None] < N_q)"),
          ("dq = torch.empty(", "dq = torch.zeros("), note="a program a tile pair, which adds to what is there"),
    in_attention("dq-race", "attention_one_kernel", ("tl.atomic_add(dq_ptr + saved[:, None] * d + cols[None, :], dQ_part, mask=row)",
                 "dq_tile = dq_ptr + saved[:, None] * d + cols[None, :]\n        tl.store(dq_tile, tl.load(dq_tile, mask=row, other=0.0) + dQ_part, mask=row)"), note="load, add, store instead of an atomic"),
    in_row_dot("race", (ROW_DOT_GRID, ROW_DOT_GRID.replace("B * H_q", "B * H_q, 2"))),
    mutant("race", "dkdv_queries_outside", ("H_kv, B)]", "H_kv, 2 * B)]"), ("b = tl.program_id(2).to(tl.int64)", "b = (tl.program_id(2) // 2).to(tl.int64)")),
)  # fmt: skip

TWO_FAULTS = (
    mutant("d-missing + causal-strict", "solution", (DS, "dS = P * dP"), (DIAGONAL, DIAGONAL.replace("<=", "<"))),
    mutant("scale-missing-dk + gqa-not-summed", "solution", ("dK_j * scale", "dK_j"), ("for r in range(0, group):", "for r in range(0, 1):")),
    in_dq("scale-twice-dq + causal-top-left", "dq_exp2", ("dQ_i.to(dq_ptr.dtype.element_ty)", "(dQ_i * scale).to(dq_ptr.dtype.element_ty)"), (E_DIAGONAL, E_DIAGONAL.replace(" - offset", ""))),
    in_dq("d-added + key-tile-skipped", "solution", (DS, DS.replace("-", "+")), (KEY_LOOP, "for start in range(block_k, end, block_k):")),
    in_attention("scale-missing-dk + scale-twice-dq", "solution", ("dK_j * scale", "dK_j"), ("dQ_i * scale", "dQ_i * scale * scale")),
    in_row_dot("d-mean + query-tail-lost", (SUM, SUM + " / d_v"), (ROW_DOT_GRID, ROW_DOT_GRID.replace("triton.cdiv(N_q, block_q)", "max(1, N_q // block_q)"))),
)  # fmt: skip

EQUIVALENT = (
    mutant("causal-start-late", "solution", (FIRST, "first = 0"), note="all tiles are visited and masked: right, but over the budget of bytes"),
    mutant("tail-mask-missing", "solution", (TAIL, "visible = keys[None, :] >= 0"), note="rows of keys that do not exist are never stored"),
    in_dq("tail-load-unmasked", "solution", ("lse_i = tl.load(lse_ptr + saved + rows, mask=rows < N_q, other=0.0)", 'lse_i = tl.load(lse_ptr + saved + rows, mask=rows < N_q, other=float("inf"))'),
          note="rows past the end are computed from anything finite, but never stored"),
)  # fmt: skip
