"""Two kernels that no lab asks for, so that every ledger meets the meter: FA1's loop order, and a fused softmax."""

import torch
import triton
import triton.language as tl


@triton.jit
def fa1_visit(
    q_ptr, k_ptr, v_ptr, o_ptr, l_ptr, m_ptr, scale, start, N_q, N_k,
    d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """Algorithm 1's inner loop: one program holds K_j and V_j and passes every query tile by them."""
    keys = start + tl.arange(0, block_k)
    cols, cols_v = tl.arange(0, d), tl.arange(0, d_v)
    K_j = tl.load(k_ptr + keys[:, None] * d + cols[None, :], mask=keys[:, None] < N_k, other=0.0)
    V_j = tl.load(v_ptr + keys[:, None] * d_v + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)
    for i in range(tiles):
        rows = i * block_q + tl.arange(0, block_q)
        Q_i = tl.load(q_ptr + rows[:, None] * d + cols[None, :], mask=rows[:, None] < N_q, other=0.0)
        O_i = tl.load(o_ptr + rows[:, None] * d_v + cols_v[None, :], mask=rows[:, None] < N_q, other=0.0)
        l = tl.load(l_ptr + rows, mask=rows < N_q, other=0.0)
        m = tl.load(m_ptr + rows, mask=rows < N_q, other=0.0)
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        S = tl.where(keys[None, :] < N_k, S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        alpha = tl.exp(m - m_new)
        P = tl.exp(S - m_new[:, None])
        l_new = alpha * l + tl.sum(P, 1)
        O_i = ((alpha * l)[:, None] * O_i + tl.dot(P, V_j, input_precision="ieee")) / l_new[:, None]
        tl.store(o_ptr + rows[:, None] * d_v + cols_v[None, :], O_i, mask=rows[:, None] < N_q)
        tl.store(l_ptr + rows, l_new, mask=rows < N_q)
        tl.store(m_ptr + rows, m_new, mask=rows < N_q)


def fa1(q, k, v, o, l, m, block_q, block_k):
    """One launch a key tile; o, l and m come initialised (0, 0, -inf), which the ledger does not count."""
    (N_q, d), (N_k, d_v) = q.shape, v.shape
    for start in range(0, N_k, block_k):
        fa1_visit[(1,)](
            q, k, v, o, l, m, d**-0.5, start, N_q, N_k,
            d=d, d_v=d_v, block_q=block_q, block_k=block_k, tiles=triton.cdiv(N_q, block_q),
        )  # fmt: skip


@triton.jit
def whole_rows(q_ptr, k_ptr, p_ptr, scale, N_q, N_k, d: tl.constexpr, block_q: tl.constexpr, block: tl.constexpr):
    """Scores and softmax of whole rows: only P is stored."""
    rows, keys, cols = tl.program_id(0) * block_q + tl.arange(0, block_q), tl.arange(0, block), tl.arange(0, d)
    Q_i = tl.load(q_ptr + rows[:, None] * d + cols[None, :], mask=rows[:, None] < N_q, other=0.0)
    K = tl.load(k_ptr + keys[:, None] * d + cols[None, :], mask=keys[:, None] < N_k, other=0.0)
    S = tl.where(keys[None, :] < N_k, tl.dot(Q_i, tl.trans(K), input_precision="ieee") * scale, float("-inf"))
    P = tl.exp(S - tl.max(S, 1)[:, None])
    P = P / tl.sum(P, 1)[:, None]
    tl.store(p_ptr + rows[:, None] * N_k + keys[None, :], P, mask=(rows[:, None] < N_q) & (keys[None, :] < N_k))


@triton.jit
def product(p_ptr, v_ptr, o_ptr, N_q, N_k, d_v: tl.constexpr, block_q: tl.constexpr, block: tl.constexpr):
    rows, keys, cols = tl.program_id(0) * block_q + tl.arange(0, block_q), tl.arange(0, block), tl.arange(0, d_v)
    inside = (rows[:, None] < N_q) & (keys[None, :] < N_k)
    P = tl.load(p_ptr + rows[:, None] * N_k + keys[None, :], mask=inside, other=0.0)
    V = tl.load(v_ptr + keys[:, None] * d_v + cols[None, :], mask=keys[:, None] < N_k, other=0.0)
    O = tl.dot(P, V, input_precision="ieee")
    tl.store(o_ptr + rows[:, None] * d_v + cols[None, :], O, mask=rows[:, None] < N_q)


def fused_softmax(q, k, v, p, o, block_q):
    (N_q, d), (N_k, d_v) = q.shape, v.shape
    grid, block = (triton.cdiv(N_q, block_q),), max(16, triton.next_power_of_2(N_k))
    whole_rows[grid](q, k, p, d**-0.5, N_q, N_k, d=d, block_q=block_q, block=block)
    product[grid](p, v, o, N_q, N_k, d_v=d_v, block_q=block_q, block=block)


def inputs(N_q: int, N_k: int, d: int, d_v: int) -> dict[str, torch.Tensor]:
    """Random fp32 q, k, v and what FA1 carries: o, l, m at their first values."""
    torch.manual_seed(N_q)
    q, k, v = torch.randn(N_q, d), torch.randn(N_k, d), torch.randn(N_k, d_v)
    return {
        "q": q,
        "k": k,
        "v": v,
        "o": torch.zeros(N_q, d_v),
        "l": torch.zeros(N_q),
        "m": torch.full((N_q,), -torch.inf),
    }
