"""Programs take the number of their next tile from an atomic counter."""

import torch
import triton
import triton.language as tl


@triton.jit
def attend_tile(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, i, N_q, N_k, stride_qn, stride_kn, stride_vn, stride_on,
    d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    rows = i * block_q + tl.arange(0, block_q)
    cols = tl.arange(0, d)
    cols_v = tl.arange(0, d_v)
    Q_i = tl.load(q_ptr + rows[:, None] * stride_qn + cols[None, :], mask=rows[:, None] < N_q, other=0.0)
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    for start in range(0, N_k, block_k):
        keys = start + tl.arange(0, block_k)
        K_j = tl.load(k_ptr + keys[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < N_k, other=0.0)
        V_j = tl.load(v_ptr + keys[:, None] * stride_vn + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        S = tl.where(keys[None, :] < N_k, S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        alpha = tl.exp(m - m_new)
        P = tl.exp(S - m_new[:, None])
        l = alpha * l + tl.sum(P, 1)
        acc = alpha[:, None] * acc + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
        m = m_new
    O_i = acc / l[:, None]
    tl.store(o_ptr + rows[:, None] * stride_on + cols_v[None, :], O_i, mask=rows[:, None] < N_q)


@triton.jit
def persistent_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, counter_ptr, scale, heads, H_q, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_on,
    d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    t = tl.cdiv(N_q, block_q)  # query tiles of a head; `heads` counts the heads of the whole batch
    n = tl.atomic_add(counter_ptr, 1)
    while n < t * heads:
        i = n % t
        b = (n // t // H_q).to(tl.int64)
        h = (n // t % H_q).to(tl.int64)
        g = h // group
        attend_tile(
            q_ptr + b * stride_qb + h * stride_qh, k_ptr + b * stride_kb + g * stride_kh,
            v_ptr + b * stride_vb + g * stride_vh, o_ptr + b * stride_ob + h * stride_oh,
            scale, i, N_q, N_k, stride_qn, stride_kn, stride_vn, stride_on, d, d_v, block_q, block_k,
        )  # fmt: skip
        n = tl.atomic_add(counter_ptr, 1)


def attention_persistent(q, k, v, scale, block_q, block_k, sms):
    B, H_q, N_q, d = q.shape
    _, H_kv, N_k, d_v = v.shape
    o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
    counter = torch.zeros(1, dtype=torch.int32, device=q.device)
    tiles = triton.cdiv(N_q, block_q) * B * H_q
    grid = (min(sms, tiles),)
    persistent_kernel[grid](
        q, k, v, o, counter, scale, B * H_q, H_q, H_q // H_kv, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o
