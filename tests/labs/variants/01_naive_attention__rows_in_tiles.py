"""The softmax kernel takes whole query tiles; the value kernel divides instead, so P is not normalised in memory."""

import torch
import triton
import triton.language as tl


@triton.jit
def scores(q_ptr, k_ptr, s_ptr, scale, N_q, N_k, sq, sk, d: tl.constexpr, bq: tl.constexpr, bk: tl.constexpr):
    rows = tl.program_id(0) * bq + tl.arange(0, bq)
    keys = tl.program_id(1) * bk + tl.arange(0, bk)
    c = tl.arange(0, d)
    Q = tl.load(q_ptr + rows[:, None] * sq + c[None, :], mask=rows[:, None] < N_q, other=0.0)
    K = tl.load(k_ptr + keys[:, None] * sk + c[None, :], mask=keys[:, None] < N_k, other=0.0)
    S = scale * tl.dot(Q, K.T, input_precision="ieee")
    tl.store(s_ptr + rows[:, None] * N_k + keys[None, :], S, mask=(rows[:, None] < N_q) & (keys[None, :] < N_k))


@triton.jit
def weights(s_ptr, p_ptr, N_q, N_k, bq: tl.constexpr, block: tl.constexpr):
    rows = tl.program_id(0) * bq + tl.arange(0, bq)
    keys = tl.arange(0, block)
    at = rows[:, None] * N_k + keys[None, :]
    inside = (rows[:, None] < N_q) & (keys[None, :] < N_k)
    S = tl.load(s_ptr + at, mask=inside, other=0.0).to(tl.float32)
    S = tl.where(keys[None, :] < N_k, S, float("-inf"))
    tl.store(p_ptr + at, tl.exp(S - tl.max(S, 1)[:, None]), mask=inside)


@triton.jit
def average(p_ptr, v_ptr, o_ptr, N_q, N_k, sv, d_v: tl.constexpr, bq: tl.constexpr, bk: tl.constexpr):
    rows = tl.program_id(0) * bq + tl.arange(0, bq)
    c = tl.arange(0, d_v)
    acc = tl.zeros((bq, d_v), tl.float32)
    l = tl.zeros((bq,), tl.float32)
    for j in range(0, tl.cdiv(N_k, bk)):
        keys = j * bk + tl.arange(0, bk)
        inside = (rows[:, None] < N_q) & (keys[None, :] < N_k)
        P = tl.load(p_ptr + rows[:, None] * N_k + keys[None, :], mask=inside, other=0.0)
        V = tl.load(v_ptr + keys[:, None] * sv + c[None, :], mask=keys[:, None] < N_k, other=0.0)
        l += tl.sum(P.to(tl.float32), 1)
        acc += tl.dot(P, V, input_precision="ieee")
    O = acc / tl.where(l == 0.0, 1.0, l)[:, None]
    tl.store(o_ptr + rows[:, None] * d_v + c[None, :], O, mask=rows[:, None] < N_q)


def naive_attention(q, k, v, block_q, block_k):
    N_q, d, N_k, d_v = *q.shape, *v.shape
    S, P = (torch.empty((N_q, N_k), dtype=q.dtype, device=q.device) for _ in range(2))
    o = q.new_empty((N_q, d_v))
    grid = (triton.cdiv(N_q, block_q), triton.cdiv(N_k, block_k))
    scores[grid](q, k, S, d**-0.5, N_q, N_k, q.stride(0), k.stride(0), d=d, bq=block_q, bk=block_k)
    weights[grid[:1]](S, P, N_q, N_k, bq=block_q, block=max(16, triton.next_power_of_2(N_k)))
    average[grid[:1]](P, v, o, N_q, N_k, v.stride(0), d_v=d_v, bq=block_q, bk=block_k)
    return o
