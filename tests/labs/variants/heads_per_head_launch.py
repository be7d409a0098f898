"""The host loops over batches and heads and launches a kernel for one head each time, on views of the inputs."""

import torch
import triton
import triton.language as tl


@triton.jit
def one_head(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale, offset, N_q, N_k, stride_q, stride_k, stride_v, stride_o,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0)
    rows = i * block_q + tl.arange(0, block_q)
    c = tl.arange(0, d)
    c_v = tl.arange(0, d_v)
    Q_i = tl.load(q_ptr + rows[:, None] * stride_q + c[None, :], mask=rows[:, None] < N_q, other=0.0)
    Q_i = Q_i.to(tl.float32) * scale
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    end = N_k
    if causal:
        end = min(N_k, max(0, (i + 1) * block_q + offset))
    for j in range(0, end, block_k):
        keys = j + tl.arange(0, block_k)
        K_j = tl.load(k_ptr + keys[:, None] * stride_k + c[None, :], mask=keys[:, None] < N_k, other=0.0)
        V_j = tl.load(v_ptr + keys[:, None] * stride_v + c_v[None, :], mask=keys[:, None] < N_k, other=0.0)
        S = tl.dot(Q_i, K_j.to(tl.float32).T, input_precision="ieee")
        if causal:
            S = tl.where((keys[None, :] <= rows[:, None] + offset) & (keys[None, :] < N_k), S, float("-inf"))
        else:
            S = tl.where(keys[None, :] < N_k, S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        # exp(-inf - -inf) is NaN: in such rows nothing was seen, so both factors are 0
        nothing = m_new == float("-inf")
        alpha = tl.where(nothing, 0.0, tl.exp(m - m_new))
        P = tl.where(nothing[:, None], 0.0, tl.exp(S - m_new[:, None]))
        l = l * alpha + tl.sum(P, 1)
        acc = acc * alpha[:, None] + tl.dot(P, V_j.to(tl.float32), input_precision="ieee")
        m = m_new
    seen = l > 0.0
    O_i = tl.where(seen[:, None], acc / l[:, None], 0.0)
    tl.store(o_ptr + rows[:, None] * stride_o + c_v[None, :], O_i.to(o_ptr.dtype.element_ty), mask=rows[:, None] < N_q)
    tl.store(lse_ptr + rows, m + tl.where(seen, tl.log(l), 0.0), mask=rows < N_q)


def flash_forward(q, k, v, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    H_kv, N_k, d_v = v.shape[1:]
    o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)
    for b in range(B):
        for h in range(H_q):
            g = h // (H_q // H_kv)
            one_head[(triton.cdiv(N_q, block_q),)](
                q[b, h], k[b, g], v[b, g], o[b, h], lse[b, h], scale, offset, N_q, N_k,
                q.stride(2), k.stride(2), v.stride(2), o.stride(2),
                causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
            )  # fmt: skip
    return o, lse
