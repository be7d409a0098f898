"""The grid on which predicted and measured times are compared: kernel x shape x tile, fixed before it was measured.

Constants of the model may be fitted on the cases of role "fit"; those of role "test" only count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from flashkit.exercises import lab_cells

HALF = torch.float16
FUNCTIONS = {  # kernel: exercise, its function
    "softmax": ("01.softmax", "row_softmax"),
    "naive": ("01.naive_attention", "naive_attention"),
    "forward": ("03.heads", "flash_forward"),
    "row_dot": ("04.row_dot", "row_dot"),
    "dkdv": ("04.dkdv", "key_value_gradients"),
    "dq": ("04.dq", "query_gradient"),
}


@dataclass(frozen=True)
class Case:
    """One call. Attention: B, H heads (no groups), N tokens, d; softmax: N rows of ``columns``. fp16 throughout."""

    role: str
    kernel: str
    N: int
    d: int = 64
    B: int = 1
    H: int = 1
    causal: bool = False
    block_q: int = 64
    block_k: int = 64
    columns: int = 0

    @property
    def shape(self) -> str:
        if self.kernel == "softmax":
            return f"{self.N}x{self.columns}"
        sizes = f"B={self.B} H={self.H} N={self.N} d={self.d}{' causal' if self.causal else ''}"
        return sizes if self.kernel != "naive" else f"N={self.N} d={self.d}"

    @property
    def tile(self) -> str:
        return {"softmax": "row", "row_dot": f"{self.block_q}"}.get(self.kernel, f"{self.block_q}x{self.block_k}")


def solution(kernel: str) -> Callable:
    """The teacher's function of a kernel, from its notebook."""
    return lab_cells.solution(*FUNCTIONS[kernel])


def buffers(case: Case, device: str) -> dict[str, torch.Tensor]:
    """The tensors that a call reads, uninitialised."""

    def half(*size: int) -> torch.Tensor:
        return torch.empty(size, dtype=HALF, device=device)

    if case.kernel == "softmax":
        return {"x": half(case.N, case.columns)}
    if case.kernel == "naive":
        return {name: half(case.N, case.d) for name in ("q", "k", "v")}
    names = {"forward": ("q", "k", "v"), "row_dot": ("o", "do")}.get(case.kernel, ("q", "k", "v", "do"))
    found = {name: half(case.B, case.H, case.N, case.d) for name in names}
    if case.kernel in ("dkdv", "dq"):
        rows = (case.B, case.H, case.N)
        found |= {name: torch.empty(rows, dtype=torch.float32, device=device) for name in ("lse", "D")}
    return found


def call(case: Case, function: Callable, tensors: dict[str, torch.Tensor]) -> Callable[[], object]:
    """The case as a call without arguments."""
    given = list(tensors.values())
    if case.kernel == "naive":
        given += [case.block_q, case.block_k]
    elif case.kernel == "row_dot":
        given += [case.block_q]
    elif case.kernel != "softmax":
        given += [case.causal, 0, case.d**-0.5, case.block_q, case.block_k]
    return lambda: function(*given)


FIT = (  # timed while nothing else ran; none of them is in TEST
    Case("fit", "softmax", 8192, columns=4096),
    Case("fit", "row_dot", 4096, B=8, H=16),
    Case("fit", "naive", 8192, 64),
    Case("fit", "naive", 5120, 128, block_q=128),
    Case("fit", "dkdv", 4096, 128, B=1, H=16, block_k=32),
    *(
        Case("fit", "forward", 4096, 64, B=4, H=16, block_q=block_q, block_k=block_k)
        for block_q, block_k in ((32, 32), (32, 64), (64, 32), (64, 64), (64, 128), (128, 64))
    ),
    *(
        Case("fit", "forward", 4096, 128, B=2, H=16, block_q=block_q, block_k=block_k)
        for block_q, block_k in ((32, 64), (64, 32), (64, 64), (128, 64))
    ),
)


def _attention(role: str, kernel: str, shapes, tiles) -> list[Case]:
    return [
        Case(role, kernel, N, d, B, H, causal, block_q, block_k)
        for B, H, N, d, causal in shapes
        for block_q, block_k in tiles
    ]


TEST = (
    *(Case("test", "softmax", N, columns=c) for N, c in ((4096, 8192), (16384, 2048), (65536, 512), (2048, 16384))),
    *(
        Case("test", "row_dot", N, d, B, 16, block_q=t)
        for B, N, d in ((4, 8192, 128), (16, 2048, 64))
        for t in (64, 128)
    ),
    *(Case("test", "naive", N, d, block_q=t) for N, d in ((4096, 64), (6144, 64), (8192, 128)) for t in (64, 128)),
    *_attention(
        "test",
        "forward",
        ((2, 16, 8192, 64, False), (4, 32, 2048, 64, True), (1, 4, 16384, 64, False), (8, 16, 1024, 64, False)),
        ((64, 64), (128, 64), (64, 32), (64, 128)),
    ),
    *_attention(
        "test",
        "forward",
        ((4, 16, 2048, 128, False), (1, 8, 8192, 128, True)),
        ((64, 64), (128, 64), (64, 32), (32, 64)),
    ),
    *_attention(
        "test",
        "dkdv",
        ((2, 16, 4096, 64, False), (2, 8, 2048, 128, False), (4, 16, 2048, 64, True)),
        ((64, 64), (32, 64), (64, 32)),
    ),
    *_attention(
        "test",
        "dq",
        ((2, 16, 4096, 64, False), (2, 8, 2048, 128, False), (4, 16, 2048, 64, True)),
        ((64, 64), (32, 64), (64, 32)),
    ),
)

BLIND = (  # a second grid: no pair of FIT, TEST or the sweep is in it, and it was committed before it was measured
    *(Case("blind", "softmax", N, columns=c) for N, c in ((12288, 3072), (24576, 1024), (6144, 6144))),
    *(Case("blind", "row_dot", N, d, B, 12, block_q=t) for B, N, d, t in ((6, 6144, 128, 64), (10, 3072, 64, 128))),
    *(Case("blind", "naive", N, d, block_q=t) for N, d, t in ((3072, 64, 64), (7168, 64, 128), (6144, 128, 64))),
    *_attention(
        "blind",
        "forward",
        ((3, 16, 3072, 64, False), (2, 12, 6144, 64, True), (1, 10, 12288, 64, False)),
        ((64, 64), (128, 64), (64, 32), (32, 64)),
    ),
    *_attention(
        "blind",
        "forward",
        ((1, 16, 6144, 128, False), (3, 12, 3072, 128, True)),
        ((64, 64), (128, 64), (64, 32), (128, 32)),
    ),
    *_attention(
        "blind",
        "dkdv",
        ((1, 20, 6144, 64, False), (3, 8, 3072, 128, True)),
        ((64, 64), (32, 64), (64, 32)),
    ),
    *_attention(
        "blind",
        "dq",
        ((1, 20, 6144, 64, False), (3, 8, 3072, 128, True)),
        ((64, 64), (32, 64), (64, 32), (128, 64)),
    ),
)
