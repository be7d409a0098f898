"""Half of the heads at a time, so that their K and V stay in the L2; longest first within them."""

import torch
import triton
import triton.language as tl


@triton.jit
def attend_causal_tile(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, offset, i, N_q, N_k, stride_qn, stride_kn, stride_vn, stride_on,
    d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    rows = i * block_q + tl.arange(0, block_q)
    cols = tl.arange(0, d)
    cols_v = tl.arange(0, d_v)
    Q_i = tl.load(q_ptr + rows[:, None] * stride_qn + cols[None, :], mask=rows[:, None] < N_q, other=0.0)
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    end = tl.minimum(N_k, tl.maximum(0, (i + 1) * block_q + offset))  # one past the last key that the last row sees
    for start in range(0, end, block_k):
        keys = start + tl.arange(0, block_k)
        K_j = tl.load(k_ptr + keys[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < N_k, other=0.0)
        V_j = tl.load(v_ptr + keys[:, None] * stride_vn + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        visible = (keys[None, :] <= rows[:, None] + offset) & (keys[None, :] < N_k)
        S = tl.where(visible, S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        m_finite = tl.where(m_new == float("-inf"), 0.0, m_new)  # a row that has seen nothing yet
        alpha = tl.exp(m - m_finite)
        P = tl.exp(S - m_finite[:, None])
        l = alpha * l + tl.sum(P, 1)
        acc = alpha[:, None] * acc + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
        m = m_new
    O_i = acc / tl.where(l == 0.0, 1.0, l)[:, None]
    tl.store(o_ptr + rows[:, None] * stride_on + cols_v[None, :], O_i, mask=rows[:, None] < N_q)


@triton.jit
def longest_first_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, offset, heads, H_q, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_on,
    d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0)
    t = tl.cdiv(N_q, block_q)  # query tiles of a head; `heads` counts the heads of the whole batch
    half = tl.cdiv(heads, 2)  # as many heads as share the L2
    first = n // (half * t) * half
    these = tl.minimum(half, heads - first)
    rest = n - first * t
    i = t - 1 - rest // these
    head = first + rest % these
    b = (head // H_q).to(tl.int64)
    h = (head % H_q).to(tl.int64)
    g = h // group
    attend_causal_tile(
        q_ptr + b * stride_qb + h * stride_qh, k_ptr + b * stride_kb + g * stride_kh,
        v_ptr + b * stride_vb + g * stride_vh, o_ptr + b * stride_ob + h * stride_oh,
        scale, offset, i, N_q, N_k, stride_qn, stride_kn, stride_vn, stride_on, d, d_v, block_q, block_k,
    )  # fmt: skip


def attention_longest_first(q, k, v, offset, scale, block_q, block_k, sms):
    B, H_q, N_q, d = q.shape
    _, H_kv, N_k, d_v = v.shape
    o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
    grid = (triton.cdiv(N_q, block_q) * B * H_q,)
    longest_first_kernel[grid](
        q, k, v, o, scale, offset, B * H_q, H_q, H_q // H_kv, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o
