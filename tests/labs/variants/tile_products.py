"""No matrix product: scores and outputs are sums of elementwise products; the weights are normalised before P V."""

import torch
import triton
import triton.language as tl


@triton.jit
def tile_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, N_q, N_k, stride_qn, stride_kn, stride_vn, stride_on,
    d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    rows = tl.arange(0, block_q)
    keys = tl.arange(0, block_k)
    cols = tl.arange(0, d)
    cols_v = tl.arange(0, d_v)
    # Load the tiles Q_i (block_q, d), K_j (block_k, d) and V_j (block_k, d_v): about 3 lines.
    Q_i = tl.load(q_ptr + rows[:, None] * stride_qn + cols[None, :], mask=rows[:, None] < N_q, other=0.0)
    K_j = tl.load(k_ptr + keys[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < N_k, other=0.0)
    V_j = tl.load(v_ptr + keys[:, None] * stride_vn + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)
    # S in fp32, -inf for keys that do not exist; then m, P, l and the average O_i: about 6 lines.
    S = tl.sum(Q_i[:, None, :].to(tl.float32) * K_j[None, :, :].to(tl.float32), 2) * scale
    S = tl.where(keys[None, :] < N_k, S, float("-inf"))
    m = tl.max(S, 1)
    P = tl.exp(S - m[:, None])
    l = tl.sum(P, 1)
    O_i = tl.sum((P / l[:, None])[:, :, None] * V_j[None, :, :].to(tl.float32), 1)
    # Store the rows of O_i that exist; tl.store rounds to the output's dtype: 1 line.
    tl.store(o_ptr + rows[:, None] * stride_on + cols_v[None, :], O_i, mask=rows[:, None] < N_q)


def attention_tile(q, k, v, block_q, block_k):
    N_q, d = q.shape
    N_k, d_v = v.shape
    o = torch.empty((N_q, d_v), dtype=q.dtype, device=q.device)
    tile_kernel[(1,)](
        q, k, v, o, d**-0.5, N_q, N_k, q.stride(0), k.stride(0), v.stride(0), o.stride(0),
        d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o
