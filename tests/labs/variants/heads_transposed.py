"""Everything transposed: scores are (block_k, block_q), the accumulator (d_v, block_q), statistics run along axis 0."""

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale, offset, H_q, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_on,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(1)
    b = (tl.program_id(0) // H_q).to(tl.int64)
    h = (tl.program_id(0) % H_q).to(tl.int64)
    rows = i * block_q + tl.arange(0, block_q)
    q_tile = q_ptr + b * stride_qb + h * stride_qh + rows[None, :] * stride_qn + tl.arange(0, d)[:, None]
    Q_T = tl.load(q_tile, mask=rows[None, :] < N_q, other=0.0)
    k_ptr += b * stride_kb + (h // group) * stride_kh
    v_ptr += b * stride_vb + (h // group) * stride_vh
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((d_v, block_q), tl.float32)
    end = N_k
    if causal:
        end = tl.minimum(N_k, tl.maximum(0, (i + 1) * block_q + offset))
    for start in tl.range(0, end, block_k):
        keys = start + tl.arange(0, block_k)
        K_j = tl.load(k_ptr + keys[:, None] * stride_kn + tl.arange(0, d)[None, :], mask=keys[:, None] < N_k, other=0.0)
        V_T = tl.load(
            v_ptr + keys[None, :] * stride_vn + tl.arange(0, d_v)[:, None], mask=keys[None, :] < N_k, other=0.0
        )
        S_T = tl.dot(K_j, Q_T, input_precision="ieee") * scale
        bias = tl.where(keys < N_k, 0.0, float("-inf"))[:, None]
        if causal:
            bias += tl.where(keys[:, None] <= rows[None, :] + offset, 0.0, float("-inf"))
        S_T += bias
        m_new = tl.maximum(m, tl.max(S_T, 0))
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp(m - m_safe)
        P_T = tl.exp(S_T - m_safe[None, :])
        l = alpha * l + tl.sum(P_T, 0)
        acc = alpha[None, :] * acc + tl.dot(V_T, P_T.to(V_T.dtype), input_precision="ieee")
        m = m_new
    l_safe = tl.where(l == 0.0, 1.0, l)
    o_tile = o_ptr + b * stride_ob + h * stride_oh + rows[None, :] * stride_on + tl.arange(0, d_v)[:, None]
    tl.store(o_tile, (acc / l_safe[None, :]).to(o_ptr.dtype.element_ty), mask=rows[None, :] < N_q)
    lse = tl.where(l == 0.0, float("-inf"), m + tl.log(l_safe))
    tl.store(lse_ptr + (b * H_q + h) * N_q + rows, lse, mask=rows < N_q)


def flash_forward(q, k, v, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    H_kv, N_k, d_v = v.shape[1:]
    o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)
    forward_kernel[(B * H_q, triton.cdiv(N_q, block_q))](
        q, k, v, o, lse, scale, offset, H_q, H_q // H_kv, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o, lse
