"""Planted faults of lab 03: every named mistake of the forward in two spellings or kernel structures, and pairs."""

# ruff: noqa: E501  one mutant a line

from __future__ import annotations

from tests.labs.mutant import Mutant

INF = 'float("-inf")'
# Lines of the solutions
L_SUM = "l = alpha * l + tl.sum(P, 1)"
ACC = "acc = alpha[:, None] * acc + tl.dot("
ALPHA = "alpha = tl.exp(m - m_finite)"
WEIGHTS = "P = tl.exp(S - m_finite[:, None])"
NEW_MAX = "m_new = tl.maximum(m, tl.max(S, 1))"
START = f"m = tl.full((block_q,), {INF}, tl.float32)"
HIDE = f"S = tl.where(visible, S, {INF})"
TAIL = "visible = keys[None, :] < N_k"
DIAGONAL = "visible = visible & (keys[None, :] <= rows[:, None] + offset)"
BOUND = "end = tl.minimum(N_k, tl.maximum(0, (i + 1) * block_q + offset))"
LOOP = "for start in range(0, end, block_k):"
FINITE = f"m_finite = tl.where(m_new == {INF}, 0.0, m_new)"
LOAD_Q = "Q_i = tl.load(q_ptr + rows[:, None] * stride_qn + cols[None, :], mask=rows[:, None] < N_q, other=0.0)"
LOAD_K = "K_j = tl.load(k_ptr + keys[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < N_k, other=0.0)"
LOAD_V = "V_j = tl.load(v_ptr + keys[:, None] * stride_vn + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)"
STORE_O = "tl.store(o_ptr + rows[:, None] * stride_on + cols_v[None, :], O_i, mask=rows[:, None] < N_q)"
PRODUCT = 'tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale'
LAST_STEP = '        acc = alpha[:, None] * acc + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")\n'
GRID = "grid = (triton.cdiv(N_q, block_q), B * H_q)"
# Lines of variants
EXP2_TAIL = f"        S = tl.where(keys[None, :] < N_k, S, {INF})\n"
EXP2_DIAGONAL = f"S = tl.where(rows[:, None] + offset >= keys[None, :], S, {INF})"
EXP2_BOUND = "tl.maximum(0, first + block_q + offset)"
EXP2_ADD = 'acc += tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")\n'
EXP2_V = "tl.arange(0, d_v)[None, :], mask=keys[:, None] < N_k, other=0.0\n"
LEFT_HIDE = f"S = tl.where(hidden, {INF}, S)"
LEFT_LOOP = "for step in range(0, last + 1):"


def mutant(fault: str, base: str, *patch: tuple[str, str], on: str = "03.heads", note: str = "") -> Mutant:
    return Mutant(fault, base, patch, on, note)


MUTANTS = (
    # ---- the online softmax
    mutant("rescale-numerator-only", "solution", (L_SUM, "l = l + tl.sum(P, 1)")),
    mutant("rescale-numerator-only", "heads_exp2", ("l = l * alpha +", "l = l +")),
    mutant("rescale-numerator-only", "heads_deferred_sum", ("L = alpha[:, None] * L + P", "L += P")),
    mutant("rescale-numerator-only", "solution", (L_SUM, "l += tl.sum(P, 1)"), on="03.rows"),
    mutant("rescale-denominator-only", "solution", (ACC, "acc = acc + tl.dot(")),
    mutant("rescale-denominator-only", "heads_right_to_left", ("acc=acc * alpha[:, None]", "acc=acc")),
    mutant("rescale-denominator-only", "solution", (ACC, "acc += tl.dot("), on="03.causal"),
    mutant("rescale-neither", "solution", (L_SUM, "l = l + tl.sum(P, 1)"), (ACC, "acc = acc + tl.dot(")),
    mutant("rescale-neither", "heads_transposed", ("alpha = tl.exp(m - m_safe)", "alpha = tl.full((block_q,), 1.0, tl.float32)")),
    mutant("rescale-neither", "solution", ("alpha = tl.exp(m - m_new)", "alpha = tl.where(m > m_new, 0.0, 1.0)"), on="03.rows"),
    mutant("rescale-inverse", "solution", (ALPHA, f"alpha = tl.where(m == {INF}, 0.0, tl.exp(m_finite - m))")),
    mutant("rescale-inverse", "heads_exp2", ("alpha = tl.exp2(m - shift)", "alpha = tl.exp2(shift - m)")),
    mutant("rescale-inverse", "solution", ("alpha = tl.exp(m - m_new)", "alpha = tl.exp(m_new - m)"), on="03.rows"),
    mutant("rescale-inverse", "solution", ("P = tl.exp(S - m_new[:, None])", "P = tl.exp(S - m[:, None])"), on="03.rows", note="P relative to the old maximum"),
    mutant("own-max", "solution", (NEW_MAX, "m_new = tl.max(S, 1)")),
    mutant("own-max", "heads_exp2", ("m_new = tl.maximum(m, tl.max(S, axis=1))", "m_new = tl.max(S, axis=1)")),
    mutant("own-max", "heads_per_head_launch", (NEW_MAX, "m_new = tl.max(S, 1)")),
    mutant("own-max", "solution", ("P = tl.exp(S - m_new[:, None])", "P = tl.exp(S - tl.max(S, 1)[:, None])"), on="03.rows"),
    mutant("no-max", "solution", (NEW_MAX, "m_new = tl.zeros((block_q,), tl.float32)")),
    mutant("no-max", "heads_exp2", ("m_new = tl.maximum(m, tl.max(S, axis=1))", "m_new = tl.zeros((block_q,), tl.float32)")),
    mutant("no-max", "solution", ("P = tl.exp(S - m[:, None])", "P = tl.exp(S)"), on="03.tile"),
    mutant("no-max", "solution", (NEW_MAX, "m_new = m * 0.0"), (START, "m = tl.zeros((block_q,), tl.float32)"), on="03.rows"),
    mutant("max-from-zero", "solution", (START, "m = tl.zeros((block_q,), tl.float32)")),
    mutant("max-from-zero", "heads_exp2", (START, "m = tl.zeros((block_q,), tl.float32)")),
    mutant("max-from-zero", "solution", (START, "m = tl.zeros((block_q,), tl.float32)"), on="03.rows"),
    mutant("max-from-zero", "solution", ("m = tl.max(S, 1)", "m = tl.maximum(tl.max(S, 1), 0.0)"), on="03.tile"),
    mutant("normalised-every-step", "solution", (LAST_STEP, LAST_STEP + "        acc = acc / l[:, None]\n")),
    mutant("normalised-every-step", "heads_exp2", (EXP2_ADD, EXP2_ADD + "        acc = acc / tl.where(l == 0.0, 1.0, l)[:, None]\n")),
    mutant("normalised-every-step", "solution", (LAST_STEP, LAST_STEP + "        acc = acc / l[:, None]\n"),
           ("O_i = acc / l[:, None]", "O_i = acc"), on="03.rows", note="divided in the loop instead of after it"),
    mutant("division-forgotten", "solution", ("O_i = acc / l_or_1[:, None]", "O_i = acc")),
    mutant("division-forgotten", "heads_exp2", ("(acc / l[:, None])", "acc")),
    mutant("division-forgotten", "solution", (' / l[:, None]', ""), on="03.tile"),
    mutant("low-precision-sum", "solution", (L_SUM, "l = alpha * l + tl.sum(P.to(V_j.dtype), 1)")),
    mutant("low-precision-sum", "heads_right_to_left", ("tl.sum(P, 1)", "tl.sum(P.to(V_j.dtype), 1)")),
    mutant("low-precision-sum", "heads_exp2", ("P = tl.exp2(S - shift[:, None])", "P = tl.exp2(S - shift[:, None]).to(k_ptr.dtype.element_ty).to(tl.float32)")),
    # ---- masks
    mutant("tail-mask-missing", "solution", (TAIL, "visible = keys[None, :] >= 0")),
    mutant("tail-mask-missing", "heads_exp2", (EXP2_TAIL, "")),
    mutant("tail-mask-missing", "heads_right_to_left", ("hidden = keys[None, :] >= N_k", "hidden = keys[None, :] < 0")),
    mutant("tail-mask-missing", "solution", (" & (keys[None, :] < N_k)", ""), on="03.causal"),
    mutant("tail-mask-missing", "solution", (EXP2_TAIL, ""), on="03.rows"),
    mutant("tail-mask-missing", "solution", (f"    S = tl.where(keys[None, :] < N_k, S, {INF})\n", ""), on="03.tile"),
    mutant("finite-mask-value", "solution", (HIDE, "S = tl.where(visible, S, -1e9)")),
    mutant("finite-mask-value", "heads_right_to_left", (LEFT_HIDE, "S = tl.where(hidden, -10000.0, S)")),
    mutant("finite-mask-value", "solution", (HIDE, "S = tl.where(visible, S, -1e30)"), (START, "m = tl.full((block_q,), -1e30, tl.float32)")),
    mutant("finite-mask-value", "heads_transposed", (f"tl.where(keys[:, None] <= rows[None, :] + offset, 0.0, {INF})", "tl.where(keys[:, None] <= rows[None, :] + offset, 0.0, -1e9)"),
           note="a finite bias is added to hidden scores"),
    mutant("finite-mask-value", "solution", (f"S, {INF})", "S, -1e6)"), on="03.tile"),
    mutant("finite-mask-value", "solution", (f"S, {INF})", "S, -1e9)"), on="03.rows"),
    mutant("finite-mask-value", "solution", (HIDE, "S = tl.where(visible, S, -1e9)"), on="03.causal"),
    mutant("mask-after-max", "solution", (f"        {HIDE}\n        {NEW_MAX}\n", f"        {NEW_MAX}\n        {HIDE}\n")),
    mutant("mask-after-max", "heads_exp2", (EXP2_TAIL, "        top = tl.max(S, axis=1)\n" + EXP2_TAIL), ("tl.maximum(m, tl.max(S, axis=1))", "tl.maximum(m, top)")),
    mutant("mask-after-max", "heads_exp2", ("        if causal:\n            S =", "        top = tl.max(S, axis=1)\n        if causal:\n            S ="),
           ("tl.maximum(m, tl.max(S, axis=1))", "tl.maximum(m, top)"), note="the tail is masked before the maximum, the diagonal after it"),
    mutant("causal-top-left", "solution", (DIAGONAL, "visible = visible & (keys[None, :] <= rows[:, None])")),
    mutant("causal-top-left", "heads_exp2", (EXP2_DIAGONAL, EXP2_DIAGONAL.replace(" + offset", "")), (EXP2_BOUND, "first + block_q")),
    mutant("causal-top-left", "solution", ("rows[:, None] + offset) &", "rows[:, None]) &"), on="03.causal"),
    mutant("causal-top-left", "solution", ("rows[:, None] + offset) &", "rows[:, None]) &"), ("* block_q + offset))", "* block_q))"), on="03.causal"),
    mutant("causal-strict", "solution", (DIAGONAL, DIAGONAL.replace("<=", "<"))),
    mutant("causal-strict", "heads_right_to_left", ("keys[None, :] > rows", "keys[None, :] >= rows")),
    mutant("causal-strict", "solution", ("keys[None, :] <= rows", "keys[None, :] < rows"), on="03.causal"),
    mutant("causal-offset-sign", "solution", (DIAGONAL, DIAGONAL.replace("+", "-"))),
    mutant("causal-offset-sign", "heads_exp2", (EXP2_DIAGONAL, EXP2_DIAGONAL.replace("+", "-")), (EXP2_BOUND, EXP2_BOUND.replace("+ offset", "- offset"))),
    mutant("causal-offset-sign", "solution", ("rows[:, None] + offset", "rows[:, None] - offset"), on="03.causal"),
    mutant("causal-local-index", "solution", (DIAGONAL, DIAGONAL.replace("keys", "tl.arange(0, block_k)"))),
    mutant("causal-local-index", "heads_exp2", (EXP2_DIAGONAL, EXP2_DIAGONAL.replace("rows", "tl.arange(0, block_q)"))),
    mutant("causal-local-index", "solution", ("keys[None, :] <= rows[:, None]", "tl.arange(0, block_k)[None, :] <= tl.arange(0, block_q)[:, None]"), on="03.causal"),
    mutant("causal-ignored", "solution", (DIAGONAL, "visible = visible & (keys[None, :] < N_k)")),
    mutant("causal-ignored", "heads_exp2", (EXP2_DIAGONAL, "S = S + 0.0"), (EXP2_BOUND, "N_k")),
    mutant("causal-ignored", "heads_two_loops", ("visible = visible & (keys[None, :] <= rows[:, None] + offset)", "visible = visible & (keys[None, :] >= 0)")),
    mutant("causal-ignored", "solution", ("(keys[None, :] <= rows[:, None] + offset) & ", ""), on="03.causal"),
    mutant("causal-bound-short", "solution", ("(i + 1) * block_q + offset", "i * block_q + offset"), note="the first row's bound"),
    mutant("causal-bound-short", "solution", ("(i + 1) * block_q + offset", "(i + 1) * block_q - 1 + offset"), note="the last row's last key as an exclusive bound"),
    mutant("causal-bound-short", "solution", ("(i + 1) * block_q + offset", "(i + 1) * block_q - 1 + offset"), on="03.causal"),
    mutant("causal-bound-short", "solution", ("(i + 1) * block_q + offset", "(i + 1) * block_k + offset"), on="03.causal", note="the other tile size"),
    mutant("causal-bound-short", "solution", ("(i + 1) * block_q + offset", "(i + 1) * block_q - offset"), on="03.causal"),
    mutant("causal-bound-short", "heads_exp2", (EXP2_BOUND, "first + block_q"), note="the offset forgotten in the bound"),
    mutant("causal-bound-short", "solution", (LOOP, "for start in range(0, (i + 1) * block_k, block_k):"), on="03.causal", note="as if block_q were block_k"),
    mutant("offset-forgotten", "solution", ("k_ptr += b * stride_kb + g * stride_kh", "k_ptr += g * stride_kh"), note="the batch"),
    mutant("offset-forgotten", "solution", ("v_ptr += b * stride_vb + g * stride_vh", "v_ptr += b * stride_vb"), note="the head"),
    mutant("offset-forgotten", "solution", *((f"{x}_ptr += b * stride_{x}b + g", f"{x}_ptr += g") for x in "kv"), note="K and V of the first batch for all"),
    mutant("key-tail-lost", "solution", (LOOP, "for start in range(0, end // block_k * block_k, block_k):"), on="03.causal", note="rounded down"),
    mutant("causal-bound-short", "solution", (BOUND, "end = tl.minimum(N_k, tl.maximum(0, ((i + 1) * block_q + offset) // block_k * block_k))"), on="03.causal", note="rounded down"),
    mutant("empty-row-nan", "solution", (FINITE, "m_finite = m_new")),
    mutant("empty-row-nan", "heads_exp2", (f"shift = tl.where(m_new == {INF}, 0.0, m_new)", "shift = m_new")),
    mutant("empty-row-nan", "heads_transposed", (f"m_safe = tl.where(m_new == {INF}, 0.0, m_new)", "m_safe = m_new")),
    mutant("empty-row-nan", "heads_right_to_left", ("alpha = tl.exp(m - m_sub)", "alpha = tl.exp(m - m_new)")),
    mutant("empty-row-nan", "solution", (FINITE, "m_finite = m_new"), on="03.causal"),
    mutant("empty-row-nan", "solution", ("tl.where(l == 0.0, 1.0, l)", "l"), on="03.causal", note="without lse one mistake with the division"),
    mutant("empty-row-division", "solution", ("O_i = acc / l_or_1[:, None]", "O_i = acc / l[:, None]")),
    mutant("empty-row-division", "heads_exp2", ("    l = tl.where(empty, 1.0, l)\n", "")),
    mutant("empty-row-division", "heads_per_head_launch", ("tl.where(seen[:, None], acc / l[:, None], 0.0)", "acc / l[:, None]")),
    # ---- scale, lse, base
    mutant("scale-missing", "solution", (PRODUCT, PRODUCT.removesuffix(" * scale"))),
    mutant("scale-missing", "heads_exp2", ("scale * 1.4426950408889634", "1.4426950408889634")),
    mutant("scale-missing", "solution", (PRODUCT, PRODUCT.removesuffix(" * scale")), on="03.tile"),
    mutant("scale-twice", "solution", (LOAD_Q, LOAD_Q + "\n    Q_i = (Q_i * scale).to(Q_i.dtype)")),
    mutant("scale-twice", "heads_scale_in_q", ('tl.dot(Q_i, tl.trans(K_j), input_precision="ieee")', PRODUCT)),
    mutant("scale-twice", "solution", ("o, d**-0.5,", "o, 1.0 / d,"), on="03.rows"),
    mutant("scale-of-another-dimension", "solution", (PRODUCT, PRODUCT.replace("* scale", "* (1.0 / d_v**0.5)"))),
    mutant("scale-of-another-dimension", "heads_exp2", ("scale * 1.4426950408889634", "d_v**-0.5 * 1.4426950408889634")),
    mutant("scale-of-another-dimension", "solution", ("o, d**-0.5,", "o, d_v**-0.5,"), on="03.rows"),
    mutant("scale-of-another-dimension", "solution", ("o, d**-0.5,", "o, d**0.5,"), on="03.tile"),
    mutant("scale-of-another-dimension", "solution", (PRODUCT, PRODUCT.replace("* scale", "/ scale")), note="divided by the scale"),
    mutant("scale-argument-ignored", "solution", (PRODUCT, PRODUCT.replace("* scale", "* (1.0 / d**0.5)"))),
    mutant("scale-argument-ignored", "heads_exp2", ("scale * 1.4426950408889634", "d**-0.5 * 1.4426950408889634")),
    mutant("lse-base-2", "solution", ("m + tl.log(l_or_1)", "m + tl.log2(l_or_1)")),
    mutant("lse-base-2", "heads_exp2", ("(m + tl.log2(l)) * 0.6931471805599453", "m + tl.log2(l)")),
    mutant("lse-base-2", "heads_exp2", ("(m + tl.log2(l)) * 0.6931471805599453", "m + tl.log(l)")),
    mutant("lse-without-m", "solution", ("m + tl.log(l_or_1)", "tl.log(l_or_1)")),
    mutant("lse-without-m", "heads_exp2", ("(m + tl.log2(l))", "tl.log2(l)")),
    mutant("exp2-without-log2e", "solution", (ALPHA, ALPHA.replace("exp", "exp2")), (WEIGHTS, WEIGHTS.replace("exp", "exp2"))),
    mutant("exp2-without-log2e", "heads_exp2", ("scale * 1.4426950408889634", "scale")),
    mutant("exp2-without-log2e", "solution", (WEIGHTS, WEIGHTS.replace("exp", "exp2"))),
    mutant("exp2-without-log2e", "solution", ("tl.exp(S", "tl.exp2(S"), on="03.tile"),
    # ---- which data
    mutant("gqa-head-map", "solution", ("g = h // group", "g = h % (H_q // group)")),
    mutant("gqa-head-map", "solution", ("g = h // group", "g = h"), note="as if every query head had its own K/V head"),
    mutant("gqa-head-map", "heads_per_head_launch", ("g = h // (H_q // H_kv)", "g = h % H_kv")),
    mutant("gqa-head-map", "heads_right_to_left", ("kv = h // (H_q // H_kv)", "kv = h // H_kv"), note="divided by the heads, not by the group"),
    mutant("borrowed-stride", "solution", ("keys[:, None] * stride_vn", "keys[:, None] * stride_kn")),
    mutant("borrowed-stride", "heads_exp2", ("(h // group) * stride_vh", "(h // group) * stride_kh")),
    mutant("borrowed-stride", "solution", ("*k.stride()[:3], *v.stride()[:3]", "*k.stride()[:3], *k.stride()[:3]")),
    mutant("borrowed-stride", "heads_per_head_launch", ("q.stride(2), k.stride(2)", "q.stride(2), q.stride(2)")),
    mutant("key-tail-lost", "solution", (LOOP, "for start in range(0, end // block_k * block_k, block_k):")),
    mutant("key-tail-lost", "heads_exp2", ("tl.cdiv(seen, block_k)", "seen // block_k")),
    mutant("key-tail-lost", "solution", ("range(0, N_k, block_k)", "range(0, N_k - block_k + 1, block_k)"), on="03.rows"),
    mutant("last-tile-twice", "solution", (LOOP, "for step in range(0, end + block_k, block_k):\n        start = tl.minimum(step, tl.maximum(tl.cdiv(end, block_k) - 1, 0) * block_k)")),
    mutant("last-tile-twice", "heads_right_to_left", (LEFT_LOOP, "for step in range(0, last + 2):"), ("(last - step) * block_k", "tl.minimum(last, last - step + 1) * block_k")),
    mutant("last-tile-twice", "solution", ("for start in range(0, N_k, block_k):", "for step in range(0, N_k + block_k, block_k):\n        start = tl.minimum(step, (N_k - 1) // block_k * block_k)"), on="03.rows"),
    mutant("first-tile-skipped", "solution", (LOOP, "for start in range(block_k, end, block_k):")),
    mutant("first-tile-skipped", "heads_right_to_left", (LEFT_LOOP, "for step in range(0, last):")),
    mutant("first-tile-skipped", "solution", ("range(0, N_k, block_k)", "range(block_k, N_k, block_k)"), on="03.rows"),
    # ---- addresses, which the meter sees
    mutant("query-tail-lost", "solution", (GRID, "grid = (max(1, N_q // block_q), B * H_q)")),
    mutant("query-tail-lost", "heads_exp2", ("triton.cdiv(N_q, block_q)", "N_q // block_q or 1")),
    mutant("query-tail-lost", "solution", ("grid = (triton.cdiv(N_q, block_q),)", "grid = (max(1, N_q // block_q),)"), on="03.rows"),
    mutant("tail-load-unmasked", "solution", (LOAD_K, LOAD_K.split(", mask")[0] + ")")),
    mutant("tail-load-unmasked", "heads_exp2", ("tl.arange(0, d)[None, :], mask=rows[:, None] < N_q, other=0.0)", "tl.arange(0, d)[None, :])")),
    mutant("tail-load-unmasked", "solution", (LOAD_Q, LOAD_Q.split(", mask")[0] + ")"), on="03.rows"),
    mutant("tail-load-unmasked", "solution", (LOAD_K, LOAD_K.split(", mask")[0] + ")"), on="03.tile"),
    mutant("v-tail-unmasked", "solution", (LOAD_V, LOAD_V.split(", mask")[0] + ")")),
    mutant("v-tail-unmasked", "heads_exp2", (EXP2_V, "tl.arange(0, d_v)[None, :]\n")),
    mutant("v-tail-unmasked", "solution", (LOAD_V, LOAD_V.split(", mask")[0] + ")"), on="03.causal"),
    mutant("tail-store-unmasked", "solution", (STORE_O, STORE_O.split(", mask")[0] + ")")),
    mutant("tail-store-unmasked", "heads_exp2", ("tl.store(lse_ptr + rows, lse, mask=rows < N_q)", "tl.store(lse_ptr + rows, lse)")),
    mutant("tail-store-unmasked", "solution", (STORE_O, STORE_O.split(", mask")[0] + ")"), on="03.rows"),
    mutant("other-missing", "solution", (LOAD_V, LOAD_V.replace(", other=0.0", ""))),
    mutant("other-missing", "heads_exp2", (EXP2_V, EXP2_V.replace(", other=0.0", ""))),
    mutant("other-missing", "solution", (LOAD_V, LOAD_V.replace(", other=0.0", "")), on="03.tile"),
    mutant("int32-overflow", "solution", ("b = (tl.program_id(1) // H_q).to(tl.int64)", "b = tl.program_id(1) // H_q")),
    mutant("int32-overflow", "heads_exp2", ("b = tl.program_id(2).to(tl.int64)", "b = tl.program_id(2)")),
    mutant("race", "solution", (GRID, GRID.replace("B * H_q", "B * H_q, B + 1")), note="a third grid axis that the kernel does not use"),
    mutant("race", "solution", ("o_ptr += b * stride_ob + h * stride_oh", "o_ptr += b * stride_ob + g * stride_oh"), note="heads of a group share an output"),
    mutant("race", "heads_exp2", ("(triton.cdiv(N_q, block_q), H_q, B)", "(triton.cdiv(N_q, block_q), H_q, 2 * B)"), ("b = tl.program_id(2).to(tl.int64)", "b = (tl.program_id(2) // 2).to(tl.int64)")),
    mutant("race", "solution", ("grid = (triton.cdiv(N_q, block_q),)", "grid = (triton.cdiv(N_q, block_q), 2)"), on="03.causal"),
)  # fmt: skip

TWO_FAULTS = (
    mutant("rescale-numerator-only + causal-strict", "solution", (L_SUM, "l = l + tl.sum(P, 1)"), (DIAGONAL, DIAGONAL.replace("<=", "<"))),
    mutant("scale-missing + tail-mask-missing", "solution", (PRODUCT, PRODUCT.removesuffix(" * scale")), (TAIL, "visible = keys[None, :] >= 0")),
    mutant("lse-base-2 + gqa-head-map", "solution", ("m + tl.log(l_or_1)", "m + tl.log2(l_or_1)"), ("g = h // group", "g = h % (H_q // group)")),
    mutant("rescale-denominator-only + division-forgotten", "solution", (ACC, "acc = acc + tl.dot("), (" / l[:, None]", ""), on="03.rows"),
    mutant("own-max + causal-top-left", "heads_exp2", ("m_new = tl.maximum(m, tl.max(S, axis=1))", "m_new = tl.max(S, axis=1)"), (EXP2_DIAGONAL, EXP2_DIAGONAL.replace(" + offset", ""))),
    mutant("finite-mask-value + lse-without-m", "solution", (HIDE, "S = tl.where(visible, S, -1e9)"), ("m + tl.log(l_or_1)", "tl.log(l_or_1)")),
    mutant("key-tail-lost + scale-twice", "heads_exp2", ("tl.cdiv(seen, block_k)", "seen // block_k"), ("scale * 1.4426950408889634", "scale * scale * 1.4426950408889634")),
    mutant("first-tile-skipped + causal-strict", "solution", (LOOP, "for start in range(block_k, end, block_k):"), ("keys[None, :] <= rows", "keys[None, :] < rows"), on="03.causal"),
    mutant("empty-row-nan + causal-strict", "solution", (FINITE, "m_finite = m_new"), (DIAGONAL, DIAGONAL.replace("<=", "<"))),
    mutant("max-from-zero + rescale-neither", "solution", (START, "m = tl.zeros((block_q,), tl.float32)"), (L_SUM, "l = l + tl.sum(P, 1)"), (ACC, "acc = acc + tl.dot(")),
    mutant("division-forgotten + scale-missing", "solution", (" / l[:, None]", ""), (PRODUCT, PRODUCT.removesuffix(" * scale")), on="03.tile"),
    mutant("v-tail-unmasked + rescale-inverse", "solution", (LOAD_V, LOAD_V.split(", mask")[0] + ")"), (ALPHA, f"alpha = tl.where(m == {INF}, 0.0, tl.exp(m_finite - m))")),
    mutant("tail-load-unmasked + tail-store-unmasked", "solution", (LOAD_Q, LOAD_Q.split(", mask")[0] + ")"), (STORE_O, STORE_O.split(", mask")[0] + ")"), on="03.rows"),
    mutant("other-missing + causal-top-left", "solution", (LOAD_V, LOAD_V.replace(", other=0.0", "")), (DIAGONAL, DIAGONAL.replace(" + offset", ""))),
    mutant("int32-overflow + gqa-head-map", "heads_exp2", ("b = tl.program_id(2).to(tl.int64)", "b = tl.program_id(2)"), ("k_ptr += b * stride_kb + (h // group)", "k_ptr += b * stride_kb + (h % (tl.num_programs(1) // group))"),
           ("v_ptr += b * stride_vb + (h // group)", "v_ptr += b * stride_vb + (h % (tl.num_programs(1) // group))")),
    mutant("query-tail-lost + lse-base-2", "solution", (GRID, "grid = (max(1, N_q // block_q), B * H_q)"), ("m + tl.log(l_or_1)", "m + tl.log2(l_or_1)")),
)  # fmt: skip

EQUIVALENT = (
    mutant("other-missing", "solution", (LOAD_K, LOAD_K.replace(", other=0.0", "")), note="scores of keys past the end are overwritten with -inf before they are used"),
    mutant("other-missing", "solution", (LOAD_Q, LOAD_Q.replace(", other=0.0", "")), note="rows past the end are computed from anything, but never stored"),
    mutant("last-tile-twice", "solution", (LOOP, "for start in range(0, end + block_k, block_k):"), note="the extra tile lies past the end or is hidden: it adds nothing but bytes"),
    mutant("causal-bound-short", "solution", (BOUND, "end = N_k"), note="all tiles are visited and masked: right, but over the budget of bytes"),
    mutant("empty-row-nan", "solution", ("alpha = tl.exp(m - m_new)", f"alpha = tl.where(m == {INF}, 0.0, tl.exp(m - m_new))"), on="03.rows", note="every row sees a key in its first tile, so the guard changes nothing"),
    mutant("empty-row-nan", "heads_per_head_launch", ("P = tl.where(nothing[:, None], 0.0, tl.exp(S - m_new[:, None]))", "P = tl.exp(S - m_new[:, None])"),
           note="such a row sees nothing in later tiles either, and its NaN is replaced before the store"),
    mutant("rescale-neither", "heads_two_passes", ("m = tl.maximum(m, tl.max(S, 1))\n", "m = tl.maximum(tl.max(S, 1), m)\n"), note="the maximum is symmetric"),
)  # fmt: skip
