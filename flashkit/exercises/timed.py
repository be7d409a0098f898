"""The large calls whose time checks predict and a GPU measures: attention, its gradients, rows and vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from flashkit.exercises.contract import Case, GpuCell, Timed
from flashkit.exercises.inputs import ITEMSIZE
from flashkit.instruments import workload
from flashkit.instruments.workload import Work
from reference.traffic import Shape

HEADS = {"B": 4, "H_q": 16, "H_kv": 16, "N_q": 4096, "N_k": 4096}
PERSISTENT = {**HEADS, "sms": 132}  # an H200's
ONE_HEAD = {"B": 1, "H_q": 1, "H_kv": 1, "N_q": 8192, "N_k": 8192}
ROWS = {"rows": 65536}
VECTOR = {"n": 2**22}
SCORES = {"N_q": 2**18}  # of naive attention, whose softmax kernel is made for one number of keys

Works = Callable[[Case], Sequence[Work]]


def ledger_shape(case: Case) -> Shape:
    """An attention case as the traffic ledger wants it."""
    s, o = case.sizes, case.options
    return Shape(
        *(s["N_q"], s["N_k"], s["d"], s["d_v"], o["block_q"], o["block_k"], ITEMSIZE[case.dtype]),
        *(s["B"], s["H_q"], s["H_kv"], bool(o.get("causal")), int(o.get("offset", 0))),
    )


def attention_tensors(*names: str, dims: int = 4) -> Callable[[Case], Mapping[str, tuple[tuple[int, ...], str]]]:
    """Shapes and dtypes of these arguments of an attention exercise; ``dims`` 2 for one head without its axes."""

    def tensors(case: Case) -> dict[str, tuple[tuple[int, ...], str]]:
        s = case.sizes
        rows, keys = (s["B"], s["H_q"], s["N_q"]), (s["B"], s["H_kv"], s["N_k"])
        shapes = {"q": (*rows, s["d"]), "k": (*keys, s["d"]), "v": (*keys, s["d_v"])}
        shapes |= {"o": (*rows, s["d_v"]), "do": (*rows, s["d_v"]), "lse": rows, "D": rows}
        return {n: (shapes[n][4 - dims :], "fp32" if n in ("lse", "D") else case.dtype) for n in names}

    return tensors


def attention(works: Works, *names: str, dims: int = 4, grown: Mapping[str, int] | None = None) -> Timed:
    """One head of 8192 tokens (``dims`` 2), or 64 heads of 4096; ``grown`` other sizes, ``{}`` for the case's own."""
    sizes = (HEADS if dims == 4 else ONE_HEAD) if grown is None else grown
    options = {"offset": 0} if sizes else {}
    return Timed(sizes, works, attention_tensors(*names, dims=dims), options)


# ---- what each launch of the course's own solution has to do, in launch order: the Works of a Timed -----


def forward(case: Case) -> list[Work]:
    return [workload.forward(ledger_shape(case))]


def naive(case: Case) -> list[Work]:
    return list(workload.naive_attention(ledger_shape(case)))


def row_dot(case: Case) -> list[Work]:
    return [workload.row_dot(ledger_shape(case))]


def dkdv(case: Case) -> list[Work]:
    return [workload.key_value_gradients(ledger_shape(case))]


def dq(case: Case) -> list[Work]:
    return [workload.query_gradient(ledger_shape(case))]


def forward_and_backward(case: Case) -> list[Work]:
    return [work for part in (forward, row_dot, dkdv, dq) for work in part(case)]


def persistent(case: Case) -> list[Work]:
    """A program an SM, which walks over every sms-th tile."""
    whole = workload.forward(ledger_shape(case), case.sizes["sms"])
    programs = min(case.sizes["sms"], len(whole.trips))
    return [replace(whole, trips=tuple(sum(whole.trips[p::programs]) for p in range(programs)))]


def longest_first(case: Case) -> list[Work]:
    """A program a tile, the tiles with the most keys first."""
    whole = workload.forward(ledger_shape(case))
    return [replace(whole, trips=tuple(sorted(whole.trips, reverse=True)))]


def rows(case: Case) -> list[Work]:
    """Row softmax: in one piece, or, with a ``block``, in two walks over the row."""
    s, size = case.sizes, ITEMSIZE[case.dtype]
    whole = workload.row_softmax(s["rows"], s["columns"], size)
    if "block" not in case.options:
        return [whole]
    trips = 2 * -(-s["columns"] // case.options["block"])
    return [Work((trips,) * s["rows"], whole.requested + whole.distinct, whole.distinct, whole.written)]


def row_tensors(case: Case) -> dict[str, tuple[tuple[int, ...], str]]:
    return {"x": ((case.sizes["rows"], case.sizes["columns"]), case.dtype)}


def weighted_sum(case: Case) -> list[Work]:
    s, size = case.sizes, ITEMSIZE[case.dtype]
    trips = -(-s["columns"] // case.options["block"])
    scores, values = s["rows"] * s["columns"] * size, s["columns"] * s["d_v"] * size
    written = s["rows"] * s["d_v"] * size
    requested = scores + s["rows"] * values + written
    return [Work((trips,) * s["rows"], requested, scores + values, written, live=values)]


def weighted_sum_tensors(case: Case) -> dict[str, tuple[tuple[int, ...], str]]:
    s = case.sizes
    return {"s": ((s["rows"], s["columns"]), case.dtype), "v": ((s["columns"], s["d_v"]), case.dtype)}


def add(case: Case) -> list[Work]:
    n, size = case.sizes["n"], case.sizes["n"] * ITEMSIZE[case.dtype]
    return [Work((0,) * -(-n // case.options["block"]), 3 * size, 2 * size, size)]


def vectors(case: Case) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: ((case.sizes["n"],), case.dtype) for name in "xy"}


# ---- grade cells that only a GPU judges -----------------------------------------------------------------


def _on_gpu(case: Case, flop: Callable[[Case], float], **peers: Callable) -> GpuCell:
    return GpuCell(case, flop, peers)


def softmax_cell(rows: int = 65536, columns: int = 4096) -> GpuCell:
    case = Case("timed", {"rows": rows, "columns": columns}, {}, dtype="fp16")
    return _on_gpu(case, lambda case: 0.0, torch=lambda x: torch.softmax(x, -1))


def attention_cell(products: int, B: int = 2, H: int = 16, N: int = 4096, d: int = 64, block: int = 64) -> GpuCell:
    """Attention without a mask; ``products`` of N x N x d: 2 forward, 7 with the backward."""
    sizes = {"B": B, "H_q": H, "H_kv": H, "N_q": N, "N_k": N, "d": d, "d_v": d}
    options = {"causal": False, "offset": 0, "scale": d**-0.5, "block_q": block, "block_k": block}
    case = Case("timed", sizes, options, dtype="fp16")
    return _on_gpu(case, lambda case: 2.0 * products * B * H * N * N * d, SDPA=_sdpa)


def _sdpa(q, k, v, causal=False, scale=None, **launch):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
