"""One loop with every tile masked, and exp instead of exp2."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def forward_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, scale, offset, group, N_q, N_k, causal: tl.constexpr, d: tl.constexpr,
    d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    i, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows = i * block_q + tl.arange(0, block_q)
    Q_i = q_desc.load([b, h, i * block_q, 0]).reshape(block_q, d)
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    end = N_k
    if causal:
        end = tl.minimum(N_k, tl.maximum(0, (i + 1) * block_q + offset))
    for start in range(0, end, block_k):
        keys = start + tl.arange(0, block_k)
        K_j = k_desc.load([b, h // group, start, 0]).reshape(block_k, d)
        V_j = v_desc.load([b, h // group, start, 0]).reshape(block_k, d_v)
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
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
    O_i = (acc / l_safe[:, None]).to(o_desc.dtype)
    o_desc.store([b, h, i * block_q, 0], O_i.reshape(1, 1, block_q, d_v))
    lse = tl.where(l == 0.0, float("-inf"), m + tl.log(l_safe))
    tl.store(lse_ptr + (b * tl.num_programs(1) + h) * N_q + rows, lse, mask=rows < N_q)


def flash_descriptors(q, k, v, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    H_kv, N_k, d_v = v.shape[1:]
    o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)

    def tiles_of(x, rows):
        return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, x.shape[3]])

    forward_kernel[(triton.cdiv(N_q, block_q), H_q, B)](
        tiles_of(q, block_q), tiles_of(k, block_k), tiles_of(v, block_k), tiles_of(o, block_q), lse, scale, offset,
        H_q // H_kv, N_q, N_k, causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o, lse
