"""Keys from right to left: the first tile holds the tail, and under a causal mask most of what is hidden."""

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale, offset, H_q, H_kv, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_on,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(N_q, block_q)
    i = tl.program_id(0) % tiles
    head = (tl.program_id(0) // tiles).to(tl.int64)
    b, h = head // H_q, head % H_q
    kv = h // (H_q // H_kv)
    rows = i * block_q + tl.arange(0, block_q)
    real = rows < N_q
    Q_i = tl.load(
        q_ptr + b * stride_qb + h * stride_qh + rows[:, None] * stride_qn + tl.arange(0, d)[None, :],
        mask=real[:, None], other=0.0,
    )  # fmt: skip
    k_ptr += b * stride_kb + kv * stride_kh
    v_ptr += b * stride_vb + kv * stride_vh
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    end = N_k
    if causal:
        end = tl.minimum(end, tl.maximum((i + 1) * block_q + offset, 0))
    last = tl.cdiv(end, block_k) - 1
    for step in range(0, last + 1):
        keys = (last - step) * block_k + tl.arange(0, block_k)
        exists = keys < N_k
        K_j = tl.load(k_ptr + keys[:, None] * stride_kn + tl.arange(0, d)[None, :], mask=exists[:, None], other=0.0)
        V_j = tl.load(v_ptr + keys[:, None] * stride_vn + tl.arange(0, d_v)[None, :], mask=exists[:, None], other=0.0)
        S = scale * tl.dot(Q_i, tl.trans(K_j), input_precision="ieee")
        hidden = keys[None, :] >= N_k
        if causal:
            hidden = hidden | (keys[None, :] > rows[:, None] + offset)
        S = tl.where(hidden, float("-inf"), S)
        m_new = tl.maximum(m, tl.max(S, 1))
        m_sub = tl.where(m_new > float("-inf"), m_new, 0.0)
        P = tl.exp(S - m_sub[:, None])
        alpha = tl.exp(m - m_sub)
        acc = tl.dot(P.to(v_ptr.dtype.element_ty), V_j, acc=acc * alpha[:, None], input_precision="ieee")
        l = l * alpha + tl.sum(P, 1)
        m = m_new
    # a row that saw nothing: 1 / inf is 0, and 0 * 0 is 0
    reciprocal = 1.0 / tl.where(l > 0.0, l, float("inf"))
    lse = tl.where(l > 0.0, m + tl.log(l), float("-inf"))
    tl.store(
        o_ptr + b * stride_ob + h * stride_oh + rows[:, None] * stride_on + tl.arange(0, d_v)[None, :],
        (acc * reciprocal[:, None]).to(o_ptr.dtype.element_ty), mask=real[:, None],
    )  # fmt: skip
    tl.store(lse_ptr + head * N_q + rows, lse, mask=real)


def flash_forward(q, k, v, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    H_kv, N_k, d_v = v.shape[1:]
    o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)
    forward_kernel[(triton.cdiv(N_q, block_q) * B * H_q,)](
        q, k, v, o, lse, scale, offset, H_q, H_kv, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o, lse
