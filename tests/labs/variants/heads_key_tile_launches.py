"""FlashAttention 1's order: one launch a key tile, and O, l and m make a round trip through memory each time."""

import torch
import triton
import triton.language as tl


@triton.jit
def visit(
    q_ptr, k_ptr, v_ptr, o_ptr, m_ptr, l_ptr, lse_ptr, scale, start, last, offset, H_q, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    b, h = head // H_q, head % H_q
    rows = tl.program_id(0) * block_q + tl.arange(0, block_q)
    keys = start + tl.arange(0, block_k)
    real, exists = rows < N_q, keys < N_k
    q_tile = q_ptr + b * stride_qb + h * stride_qh + rows[:, None] * stride_qn + tl.arange(0, d)[None, :]
    k_tile = k_ptr + b * stride_kb + h // group * stride_kh + keys[:, None] * stride_kn + tl.arange(0, d)[None, :]
    v_tile = v_ptr + b * stride_vb + h // group * stride_vh + keys[:, None] * stride_vn + tl.arange(0, d_v)[None, :]
    acc_tile = o_ptr + (head * N_q + rows[:, None]) * d_v + tl.arange(0, d_v)[None, :]
    Q_i = tl.load(q_tile, mask=real[:, None], other=0.0)
    K_j = tl.load(k_tile, mask=exists[:, None], other=0.0)
    V_j = tl.load(v_tile, mask=exists[:, None], other=0.0)
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    if start > 0:
        m = tl.load(m_ptr + head * N_q + rows, mask=real, other=0.0)
        l = tl.load(l_ptr + head * N_q + rows, mask=real, other=0.0)
        acc = tl.load(acc_tile, mask=real[:, None], other=0.0)
    S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
    visible = exists[None, :]
    if causal:
        visible = visible & (keys[None, :] <= rows[:, None] + offset)
    S = tl.where(visible, S, float("-inf"))
    m_new = tl.maximum(m, tl.max(S, 1))
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    alpha = tl.exp(m - m_safe)
    P = tl.exp(S - m_safe[:, None])
    l = alpha * l + tl.sum(P, 1)
    acc = alpha[:, None] * acc + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
    if last:
        l_safe = tl.where(l == 0.0, 1.0, l)
        acc = acc / l_safe[:, None]
        tl.store(lse_ptr + head * N_q + rows, tl.where(l == 0.0, float("-inf"), m_new + tl.log(l_safe)), mask=real)
    tl.store(m_ptr + head * N_q + rows, m_new, mask=real)
    tl.store(l_ptr + head * N_q + rows, l, mask=real)
    tl.store(acc_tile, acc, mask=real[:, None])


@triton.jit
def cast_kernel(x_ptr, y_ptr, n, block: tl.constexpr):
    lanes = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(x_ptr + lanes, mask=lanes < n, other=0.0)
    tl.store(y_ptr + lanes, x.to(y_ptr.dtype.element_ty), mask=lanes < n)


def flash_forward(q, k, v, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    H_kv, N_k, d_v = v.shape[1:]
    acc = torch.empty((B, H_q, N_q, d_v), dtype=torch.float32, device=q.device)
    m, l, lse = torch.empty((3, B, H_q, N_q), dtype=torch.float32, device=q.device)
    for start in range(0, N_k, block_k):
        visit[(triton.cdiv(N_q, block_q), B * H_q)](
            q, k, v, acc, m, l, lse, scale, start, int(start + block_k >= N_k), offset, H_q, H_q // H_kv, N_q, N_k,
            *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
            causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
        )  # fmt: skip
    o = torch.empty(acc.shape, dtype=q.dtype, device=q.device)
    cast_kernel[(triton.cdiv(o.numel(), 1024),)](acc, o, o.numel(), block=1024)
    return o, lse
