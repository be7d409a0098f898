"""The host deals the tiles out as int64 lists, longest first to who has least; o is stored in quarters, left first."""

import heapq

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
    quarters = tl.permute(tl.reshape(O_i, (2, block_q // 2, 2, d_v // 2)), (1, 3, 2, 0))
    upper, lower = tl.split(quarters)
    top = i * block_q + tl.arange(0, block_q // 2)
    for right in tl.static_range(2):
        o_at = o_ptr + right * (d_v // 2) + tl.arange(0, d_v // 2)[None, :]
        for down in tl.static_range(2):
            left_half, right_half = tl.split(lower if down else upper)
            these = top + down * (block_q // 2)
            tl.store(o_at + these[:, None] * stride_on, right_half if right else left_half, mask=these[:, None] < N_q)


@triton.jit
def longest_first_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, order_ptr, first_ptr, scale, offset, heads, H_q, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_on,
    d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0)
    t = tl.cdiv(N_q, block_q)  # query tiles of a head; `heads` counts the heads of the whole batch
    for at in range(tl.load(first_ptr + p), tl.load(first_ptr + p + 1)):
        n = tl.load(order_ptr + at)
        i = (n % t).to(tl.int32)
        b = n // t // H_q
        h = n // t % H_q
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
    t = triton.cdiv(N_q, block_q)
    programs = min(sms, t * B * H_q)
    loads, work = [(0, p) for p in range(programs)], [[] for _ in range(programs)]
    for i in reversed(range(t)):
        for head in range(B * H_q):
            load, p = loads[0]
            cost = triton.cdiv(max(0, min(N_k, (i + 1) * block_q + offset)), block_k)
            heapq.heapreplace(loads, (load + cost, p))
            work[p].append(head * t + i)
    order = torch.tensor([n for own in work for n in own], device=q.device)
    first = torch.tensor([0, *(len(own) for own in work)], device=q.device).cumsum(0)
    grid = (programs,)
    longest_first_kernel[grid](
        q, k, v, o, order, first, scale, offset, B * H_q, H_q, H_q // H_kv, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o
