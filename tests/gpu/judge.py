"""The acceptance rule on a GPU: float64 attention, tolerances from an honest run in the kernel's dtype."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Shape:
    """One call: sizes, causal offset (None: no mask), dtype, tiles, and whether tensors are BSHD views."""

    N_q: int
    N_k: int
    dtype: str
    offset: int | None = None
    B: int = 1
    H_q: int = 2
    H_kv: int = 2
    d: int = 64
    d_v: int = 64
    block_q: int = 64
    block_k: int = 64
    bshd: bool = False
    values: float = 1.0  # standard deviation of q and k


def _small(dtype: str) -> list[Shape]:
    tiles = {"block_q": 32, "block_k": 32} if dtype == "fp32" else {}
    return [
        Shape(1, 1, dtype, **tiles),
        Shape(63, 65, dtype, **tiles),
        Shape(128, 128, dtype, offset=0, **tiles),
        Shape(127, 200, dtype, offset=73, H_q=4, H_kv=1, **tiles),
        Shape(100, 70, dtype, offset=-30, B=2, **tiles),
        Shape(1, 1000, dtype, offset=999, H_q=8, H_kv=2, **tiles),
        Shape(239, 1025, dtype, B=2, H_q=4, H_kv=2, bshd=True, **tiles),
        Shape(300, 300, dtype, offset=0, d=128, d_v=64, block_q=32, block_k=64),
        Shape(77, 333, dtype, values=6.0, **tiles),
    ]


LARGE = [
    Shape(4096, 4096, "fp16", offset=0, B=2),
    Shape(16384, 16384, "fp16", H_q=2, H_kv=1),
    Shape(16384, 16384, "bf16", offset=0, H_q=2, H_kv=1),
    Shape(16385, 16381, "bf16", offset=-4, H_q=1, H_kv=1, d=128, d_v=128),
]
SHAPES = [shape for dtype in DTYPES for shape in _small(dtype)] + LARGE


def tensors(shape: Shape, seed: int, device: str = "cuda") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random q, k, v in the shape's dtype and layout."""
    generator = torch.Generator(device).manual_seed(seed)

    def draw(heads: int, rows: int, columns: int, deviation: float = 1.0) -> torch.Tensor:
        size = (shape.B, rows, heads, columns) if shape.bshd else (shape.B, heads, rows, columns)
        x = (torch.randn(size, generator=generator, device=device) * deviation).to(DTYPES[shape.dtype])
        return x.transpose(1, 2) if shape.bshd else x

    q = draw(shape.H_q, shape.N_q, shape.d, shape.values)
    return q, draw(shape.H_kv, shape.N_k, shape.d, shape.values), draw(shape.H_kv, shape.N_k, shape.d_v)


def attention(q, k, v, shape: Shape, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain attention in ``dtype``, head by head: o ``(B, H_q, N_q, d_v)`` and lse ``(B, H_q, N_q)``."""
    o = torch.zeros(*q.shape[:3], v.shape[3], dtype=dtype, device=q.device)
    lse = torch.zeros(q.shape[:3], dtype=torch.float64, device=q.device)
    group, scale = shape.H_q // shape.H_kv, shape.d**-0.5
    rows = torch.arange(shape.N_q, device=q.device)[:, None]
    hidden = None
    if shape.offset is not None:
        hidden = torch.arange(shape.N_k, device=q.device)[None, :] > rows + shape.offset
    for b in range(shape.B):
        for h in range(shape.H_q):
            S = q[b, h].to(dtype) @ k[b, h // group].to(dtype).T * scale
            if hidden is not None:
                S = S.masked_fill(hidden, float("-inf"))
            lse[b, h] = torch.logsumexp(S.double(), dim=-1)
            o[b, h] = torch.softmax(S, dim=-1).nan_to_num(0.0) @ v[b, h // group].to(dtype)
    return o, lse


def tiled(q, k, v, shape: Shape, block_k: int) -> torch.Tensor:
    """o in fp32 by online softmax, key tile after key tile, with exp2 and log2(e) folded into the scale."""
    group, scale = shape.H_q // shape.H_kv, shape.d**-0.5 * 1.4426950408889634
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    m = torch.full((*q.shape[:3], 1), float("-inf"), device=q.device)
    l, acc = torch.zeros_like(m), torch.zeros(*q.shape[:3], v.shape[3], device=q.device)
    rows = torch.arange(shape.N_q, device=q.device)[:, None]
    for start in range(0, shape.N_k, block_k):
        keys = torch.arange(start, min(start + block_k, shape.N_k), device=q.device)
        S = q @ k[:, :, keys].mT * scale
        if shape.offset is not None:
            S = S.masked_fill(keys > rows + shape.offset, float("-inf"))
        m_new = torch.maximum(m, S.amax(dim=-1, keepdim=True))
        finite = m_new.nan_to_num(neginf=0.0)
        P, alpha = torch.exp2(S - finite), torch.exp2(m - finite)
        l, acc, m = alpha * l + P.sum(dim=-1, keepdim=True), alpha * acc + P @ v[:, :, keys], m_new
    return acc / torch.where(l == 0, 1.0, l)


def honest(q, k, v, shape: Shape) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Runs in the kernel's dtype that an honest kernel might equal: plain, and with the scale folded into Q.

    For fp32, whose error is the order of its sums alone, also tile after tile of three sizes, as a fused kernel adds.
    """
    dtype, scale = DTYPES[shape.dtype], shape.d**-0.5
    folded = (q.float() * scale).to(dtype).float() / scale
    runs = [attention(q, k, v, shape, dtype), attention(folded, k, v, shape, torch.float64)]
    if shape.dtype == "fp32":
        runs += [(tiled(q, k, v, shape, block_k), runs[0][1]) for block_k in (16, 32, 128)]
    return runs


def allowed_error(reference: torch.Tensor, runs, dtype: torch.dtype) -> float:
    """Twice the largest error of an honest run's o, beside what the official tests' atol allows for rounding."""
    rounded = reference.to(dtype)
    atol = 2 * ((rounded + 0.3 - 0.3).double() - rounded.double()).abs().max().item()
    return 2 * max((low.double() - reference).abs().max().item() for low, _ in runs) + atol


def judge(function, shape: Shape, seed: int) -> dict:
    """Run ``flash_forward`` once and compare: error, allowed error, and the verdict for o and lse."""
    torch.backends.cuda.matmul.allow_tf32 = False
    q, k, v = tensors(shape, seed)
    reference, lse_reference = attention(q, k, v, shape, torch.float64)
    finite = torch.isfinite(lse_reference)
    runs = honest(q, k, v, shape)
    causal, offset = shape.offset is not None, shape.offset or 0
    o, lse = function(q, k, v, causal, offset, shape.d**-0.5, shape.block_q, shape.block_k)
    torch.cuda.synchronize()
    allowed = allowed_error(reference, runs, DTYPES[shape.dtype])
    error = (o.double() - reference).abs().max().item()
    # plain low-precision scores would allow any lse: only the folded scale counts, and fp32's own rounding
    folded = (runs[1][1][finite] - lse_reference[finite]).abs().max().item() if finite.any() else 0.0
    lse_allowed = 2 * folded + 1e-5 * (1 + lse_reference[finite].abs())
    lse_right = bool(((lse.double()[finite] - lse_reference[finite]).abs() <= lse_allowed).all())
    lse_right &= bool(torch.equal(torch.isneginf(lse), ~finite))
    right = bool(error <= allowed) and bool(torch.isfinite(o).all()) and lse_right
    return {**asdict(shape), "error": error, "allowed": allowed, "lse_right": lse_right, "right": right}
