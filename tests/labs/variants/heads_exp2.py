"""Base 2 throughout: exp2 with log2(e) folded into the scale, a three-dimensional grid, ln(2) only in lse."""

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale_log2, offset, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_on, stride_lb, stride_lh,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * block_q
    h = tl.program_id(1).to(tl.int64)
    b = tl.program_id(2).to(tl.int64)
    q_ptr += b * stride_qb + h * stride_qh
    k_ptr += b * stride_kb + (h // group) * stride_kh
    v_ptr += b * stride_vb + (h // group) * stride_vh
    o_ptr += b * stride_ob + h * stride_oh
    lse_ptr += b * stride_lb + h * stride_lh
    rows = first + tl.arange(0, block_q)
    Q_i = tl.load(q_ptr + rows[:, None] * stride_qn + tl.arange(0, d)[None, :], mask=rows[:, None] < N_q, other=0.0)
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    seen = N_k
    if causal:
        seen = tl.minimum(N_k, tl.maximum(0, first + block_q + offset))
    for j in range(0, tl.cdiv(seen, block_k)):
        keys = j * block_k + tl.arange(0, block_k)
        # K_j is loaded already transposed: (d, block_k)
        K_T = tl.load(k_ptr + keys[None, :] * stride_kn + tl.arange(0, d)[:, None], mask=keys[None, :] < N_k, other=0.0)
        S = tl.dot(Q_i, K_T, input_precision="ieee") * scale_log2
        S = tl.where(keys[None, :] < N_k, S, float("-inf"))
        if causal:
            S = tl.where(rows[:, None] + offset >= keys[None, :], S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, axis=1))
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
        P = tl.exp2(S - shift[:, None])
        alpha = tl.exp2(m - shift)
        l = l * alpha + tl.sum(P, axis=1)
        acc = acc * alpha[:, None]
        V_j = tl.load(
            v_ptr + keys[:, None] * stride_vn + tl.arange(0, d_v)[None, :], mask=keys[:, None] < N_k, other=0.0
        )
        acc += tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
        m = m_new
    empty = l == 0.0
    l = tl.where(empty, 1.0, l)
    lse = tl.where(empty, float("-inf"), (m + tl.log2(l)) * 0.6931471805599453)
    O_i = (acc / l[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + rows[:, None] * stride_on + tl.arange(0, d_v)[None, :], O_i, mask=rows[:, None] < N_q)
    tl.store(lse_ptr + rows, lse, mask=rows < N_q)


def flash_forward(q, k, v, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    H_kv, N_k, d_v = v.shape[1:]
    o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)
    forward_kernel[(triton.cdiv(N_q, block_q), H_q, B)](
        q, k, v, o, lse, scale * 1.4426950408889634, offset, H_q // H_kv, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3], *lse.stride()[:2],
        causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o, lse
