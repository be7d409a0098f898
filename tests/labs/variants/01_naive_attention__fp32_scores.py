"""S and P in fp32 scratch, P overwrites S in place, and kernel 3 is tiled in the columns of V by whole rows of P."""

import torch
import triton
import triton.language as tl


@triton.jit
def scores(q_ptr, k_ptr, s_ptr, N_q, N_k, sq, sk, d: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr):
    rows = tl.program_id(1) * block_q + tl.arange(0, block_q)
    keys = tl.program_id(0) * block_k + tl.arange(0, block_k)
    c = tl.arange(0, d)
    Q = tl.load(q_ptr + rows[:, None] * sq + c[None, :], mask=rows[:, None] < N_q, other=0.0).to(tl.float32)
    K = tl.load(k_ptr + c[:, None] + keys[None, :] * sk, mask=keys[None, :] < N_k, other=0.0).to(tl.float32)
    S = tl.dot(Q / (d**0.5), K, input_precision="ieee")
    tl.store(s_ptr + rows[:, None] * N_k + keys[None, :], S, mask=(rows[:, None] < N_q) & (keys[None, :] < N_k))


@triton.jit
def softmax_in_place(s_ptr, N_k, block: tl.constexpr):
    keys = tl.arange(0, block)
    S = tl.load(s_ptr + tl.program_id(0) * N_k + keys, mask=keys < N_k, other=float("-inf"))
    P = tl.exp(S - tl.max(S, 0))
    tl.store(s_ptr + tl.program_id(0) * N_k + keys, P / tl.sum(P, 0), mask=keys < N_k)


@triton.jit
def values(p_ptr, v_ptr, o_ptr, N_q, N_k, sv, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr):
    rows = tl.program_id(0) * block_q + tl.arange(0, block_q)
    c = tl.arange(0, d_v)
    acc = tl.zeros((block_q, d_v), tl.float32)
    for start in range(0, N_k, block_k):
        keys = start + tl.arange(0, block_k)
        real = keys < N_k
        P = tl.load(p_ptr + rows[:, None] * N_k + keys[None, :], mask=(rows[:, None] < N_q) & real[None, :], other=0.0)
        V = tl.load(v_ptr + keys[:, None] * sv + c[None, :], mask=real[:, None], other=0.0).to(tl.float32)
        acc = tl.dot(P, V, acc, input_precision="ieee")
    tl.store(o_ptr + rows[:, None] * d_v + c[None, :], acc.to(o_ptr.dtype.element_ty), mask=rows[:, None] < N_q)


def naive_attention(q, k, v, block_q, block_k):
    (N_q, d), (N_k, d_v) = q.shape, v.shape
    S = torch.empty((N_q, N_k), dtype=torch.float32, device=q.device)
    o = torch.empty((N_q, d_v), dtype=q.dtype, device=q.device)
    tiles = triton.cdiv(N_k, block_k), triton.cdiv(N_q, block_q)
    scores[tiles](q, k, S, N_q, N_k, q.stride(0), k.stride(0), d=d, block_q=block_q, block_k=block_k)
    softmax_in_place[(N_q,)](S, N_k, block=max(16, triton.next_power_of_2(N_k)))
    values[tiles[1:]](S, v, o, N_q, N_k, v.stride(0), d_v=d_v, block_q=block_q, block_k=block_k)
    return o
