"""The traffic ledger: bytes that an attention algorithm moves between HBM and the chip, tensor by tensor.

Every request counts, also for data that a cache may hold; elements that do not exist (tails) do not. Sources:
Dao et al. 2022, Algorithms 0, 1, 3 and 4 and Theorem 2; Dao 2023, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

KIB, MIB, GIB = 2**10, 2**20, 2**30


@dataclass(frozen=True)
class Shape:
    """What the bytes depend on. Sizes in elements, ``itemsize`` and ``statistics`` (m, l, lse) in bytes an element."""

    N_q: int
    N_k: int
    d: int
    d_v: int
    block_q: int
    block_k: int
    itemsize: int = 2
    B: int = 1
    H_q: int = 1
    H_kv: int = 1
    causal: bool = False
    offset: int = 0
    statistics: int = 4

    def __post_init__(self):
        for name in ("N_q", "N_k", "d", "d_v", "block_q", "block_k", "itemsize", "B", "H_q", "H_kv"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.H_q % self.H_kv:
            raise ValueError(f"H_q={self.H_q} query heads cannot share H_kv={self.H_kv} K/V heads evenly")

    @property
    def heads(self) -> int:
        return self.B * self.H_q

    @property
    def query_tiles(self) -> int:
        return -(-self.N_q // self.block_q)

    @property
    def key_tiles(self) -> int:
        return -(-self.N_k // self.block_k)

    def rows(self, i: int) -> int:
        """Rows of query tile i that exist."""
        return min(self.block_q, self.N_q - i * self.block_q)

    def keys(self, j: int) -> int:
        """Keys of key tile j that exist."""
        return min(self.block_k, self.N_k - j * self.block_k)

    def visited(self, i: int) -> int:
        """How many key tiles query tile i visits: up to the last key that its last row may see."""
        if not self.causal:
            return self.key_tiles
        return -(-min(self.N_k, max(0, (i + 1) * self.block_q + self.offset)) // self.block_k)


@dataclass(frozen=True)
class Entry:
    """One line of a ledger: a step moves a tensor; bytes read from and written to HBM."""

    step: str
    tensor: str
    read: int = 0
    written: int = 0


def naive(s: Shape) -> list[Entry]:
    """Algorithm 0 as three tiled kernels: S = Q K^T, P = softmax(S), O = P V; S and P lie in HBM.

    S is computed whole (a causal mask changes no byte); every score tile reads its Q and K tile again, and every
    query tile reads all of V.
    """
    whole = s.heads * s.N_q * s.N_k * s.itemsize
    return [
        Entry("S = Q K^T", "q", read=s.heads * s.key_tiles * s.N_q * s.d * s.itemsize),
        Entry("S = Q K^T", "k", read=s.heads * s.query_tiles * s.N_k * s.d * s.itemsize),
        Entry("S = Q K^T", "s", written=whole),
        Entry("P = softmax(S)", "s", read=whole),
        Entry("P = softmax(S)", "p", written=whole),
        Entry("O = P V", "p", read=whole),
        Entry("O = P V", "v", read=s.heads * s.query_tiles * s.N_k * s.d_v * s.itemsize),
        Entry("O = P V", "o", written=s.heads * s.N_q * s.d_v * s.itemsize),
    ]


def fused_softmax(s: Shape) -> list[Entry]:
    """Scores and softmax in one kernel that holds whole rows; only P makes the round trip."""
    return [
        Entry("P = softmax(Q K^T)", "q", read=s.heads * s.N_q * s.d * s.itemsize),
        Entry("P = softmax(Q K^T)", "k", read=s.heads * s.query_tiles * s.N_k * s.d * s.itemsize),
        *(entry for entry in naive(s) if entry.tensor == "p"),
        *(entry for entry in naive(s) if entry.tensor in ("v", "o")),
    ]


def fa1(s: Shape) -> list[Entry]:
    """FlashAttention 1's order: K_j and V_j read once; Q_i read and O_i, l_i, m_i read and written at every visit."""
    keys = s.heads * s.N_k
    rows = s.heads * sum(s.visited(i) * s.rows(i) for i in range(s.query_tiles))
    return [
        Entry("outer loop", "k", read=keys * s.d * s.itemsize),
        Entry("outer loop", "v", read=keys * s.d_v * s.itemsize),
        Entry("inner loop", "q", read=rows * s.d * s.itemsize),
        Entry("inner loop", "o", read=rows * s.d_v * s.itemsize, written=rows * s.d_v * s.itemsize),
        Entry("inner loop", "l", read=rows * s.statistics, written=rows * s.statistics),
        Entry("inner loop", "m", read=rows * s.statistics, written=rows * s.statistics),
    ]


def fa2(s: Shape) -> list[Entry]:
    """FlashAttention 2's order: Q_i read and O_i, lse_i written once; K and V read once a query tile."""
    rows = s.heads * s.N_q
    keys = s.heads * sum(s.keys(j) for i in range(s.query_tiles) for j in range(s.visited(i)))
    return [
        Entry("outer loop", "q", read=rows * s.d * s.itemsize),
        Entry("inner loop", "k", read=keys * s.d * s.itemsize),
        Entry("inner loop", "v", read=keys * s.d_v * s.itemsize),
        Entry("outer loop", "o", written=rows * s.d_v * s.itemsize),
        Entry("outer loop", "lse", written=rows * s.statistics),
    ]


def naive_backward(s: Shape) -> list[Entry]:
    """Algorithm 3: dV, dP, dS, dQ and dK as five kernels, each reading its operands once; P, dP and dS lie in HBM."""
    whole = s.heads * s.N_q * s.N_k * s.itemsize
    q, k = s.heads * s.N_q * s.d * s.itemsize, s.heads * s.N_k * s.d * s.itemsize
    v, o = s.heads * s.N_k * s.d_v * s.itemsize, s.heads * s.N_q * s.d_v * s.itemsize
    return [
        Entry("dV = P^T dO", "p", read=whole),
        Entry("dV = P^T dO", "do", read=o),
        Entry("dV = P^T dO", "dv", written=v),
        Entry("dP = dO V^T", "do", read=o),
        Entry("dP = dO V^T", "v", read=v),
        Entry("dP = dO V^T", "dp", written=whole),
        Entry("dS = P (dP - D)", "p", read=whole),
        Entry("dS = P (dP - D)", "dp", read=whole),
        Entry("dS = P (dP - D)", "ds", written=whole),
        Entry("dQ = dS K", "ds", read=whole),
        Entry("dQ = dS K", "k", read=k),
        Entry("dQ = dS K", "dq", written=q),
        Entry("dK = dS^T Q", "ds", read=whole),
        Entry("dK = dS^T Q", "q", read=q),
        Entry("dK = dS^T Q", "dk", written=k),
    ]


def fa1_backward(s: Shape) -> list[Entry]:
    """Algorithm 4: K_j, V_j read and dK_j, dV_j written once; Q, O, dO, l, m, dQ read and dQ written at a visit."""
    keys = s.heads * s.N_k
    rows = s.heads * sum(s.visited(i) * s.rows(i) for i in range(s.query_tiles))
    return [
        Entry("outer loop", "k", read=keys * s.d * s.itemsize),
        Entry("outer loop", "v", read=keys * s.d_v * s.itemsize),
        Entry("outer loop", "dk", written=keys * s.d * s.itemsize),
        Entry("outer loop", "dv", written=keys * s.d_v * s.itemsize),
        Entry("inner loop", "q", read=rows * s.d * s.itemsize),
        Entry("inner loop", "o", read=rows * s.d_v * s.itemsize),
        Entry("inner loop", "do", read=rows * s.d_v * s.itemsize),
        Entry("inner loop", "dq", read=rows * s.d * s.itemsize, written=rows * s.d * s.itemsize),
        Entry("inner loop", "l", read=rows * s.statistics),
        Entry("inner loop", "m", read=rows * s.statistics),
    ]


ALGORITHMS: dict[str, Callable[[Shape], list[Entry]]] = {
    "naive": naive,
    "fused softmax": fused_softmax,
    "FA1": fa1,
    "FA2": fa2,
}


def total(entries: list[Entry]) -> int:
    """All bytes of a ledger, read and written."""
    return sum(entry.read + entry.written for entry in entries)


def by_tensor(entries: list[Entry]) -> dict[str, int]:
    """Bytes read plus written of each tensor, in the ledger's order."""
    sums: dict[str, int] = {}
    for entry in entries:
        sums[entry.tensor] = sums.get(entry.tensor, 0) + entry.read + entry.written
    return sums


def matmul_flops(s: Shape, products: int = 2) -> int:
    """FLOP of ``products`` matrix products of N_q x N_k x d, no mask: 2 forward, 5 backward (4 if P was kept).

    For d_v != d the forward's two are N_q N_k (d + d_v) multiply-adds; the others are not told apart here.
    """
    if s.d_v != s.d and products != 2:
        raise ValueError(f"with d_v={s.d_v} and d={s.d} only the forward's 2 products are counted, not {products}")
    return s.heads * s.N_q * s.N_k * (s.d + s.d_v) * products


def fa1_blocks(M: int, d: int) -> tuple[int, int]:
    """FlashAttention 1's tile sizes (B_r, B_c) for on-chip memory of ``M`` elements: Algorithm 1, line 1."""
    B_c = -(-M // (4 * d))
    return min(B_c, d), B_c
