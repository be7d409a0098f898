"""The scale folded into Q once, in fp32, before the loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    scale,
    offset,
    H_q,
    group,
    N_q,
    N_k,
    stride_qb,
    stride_qh,
    stride_qn,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_ob,
    stride_oh,
    stride_on,
    causal: tl.constexpr,
    d: tl.constexpr,
    d_v: tl.constexpr,
    block_q: tl.constexpr,
    block_k: tl.constexpr,
):
    i = tl.program_id(0)
    b = (tl.program_id(1) // H_q).to(tl.int64)
    h = (tl.program_id(1) % H_q).to(tl.int64)
    g = h // group
    rows = i * block_q + tl.arange(0, block_q)
    cols = tl.arange(0, d)
    cols_v = tl.arange(0, d_v)
    q_rows = rows[:, None] < N_q
    Q_i = tl.load(
        q_ptr + b * stride_qb + h * stride_qh + rows[:, None] * stride_qn + cols[None, :], mask=q_rows, other=0.0
    )
    Q_i = (Q_i.to(tl.float32) * scale).to(Q_i.dtype)
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    end = N_k
    if causal:
        end = tl.minimum(N_k, tl.maximum(0, (i + 1) * block_q + offset))
    for start in range(0, end, block_k):
        keys = start + tl.arange(0, block_k)
        k_rows = keys[:, None] < N_k
        K_j = tl.load(
            k_ptr + b * stride_kb + g * stride_kh + keys[:, None] * stride_kn + cols[None, :], mask=k_rows, other=0.0
        )
        V_j = tl.load(
            v_ptr + b * stride_vb + g * stride_vh + keys[:, None] * stride_vn + cols_v[None, :], mask=k_rows, other=0.0
        )
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee")
        visible = keys[None, :] < N_k
        if causal:
            visible = visible & (keys[None, :] <= rows[:, None] + offset)
        S = tl.where(visible, S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp(m - m_safe)
        P = tl.exp(S - m_safe[:, None])
        l = alpha * l + tl.sum(P, 1)
        acc = alpha[:, None] * acc + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
        m = m_new
    l_safe = tl.where(l == 0.0, 1.0, l)
    O_i = acc / l_safe[:, None]
    tl.store(
        o_ptr + b * stride_ob + h * stride_oh + rows[:, None] * stride_on + cols_v[None, :],
        O_i.to(o_ptr.dtype.element_ty),
        mask=q_rows,
    )
    tl.store(
        lse_ptr + (b * H_q + h) * N_q + rows, tl.where(l == 0.0, float("-inf"), m + tl.log(l_safe)), mask=rows < N_q
    )


def flash_forward(q, k, v, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    H_kv, N_k, d_v = v.shape[1:]
    o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(N_q, block_q), B * H_q)
    forward_kernel[grid](
        q,
        k,
        v,
        o,
        lse,
        scale,
        offset,
        H_q,
        H_q // H_kv,
        N_q,
        N_k,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        *o.stride()[:3],
        causal=causal,
        d=d,
        d_v=d_v,
        block_q=block_q,
        block_k=block_k,
    )
    return o, lse
