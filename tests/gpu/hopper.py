"""Lab 07's kernels on a Hopper GPU: ``python -m tests.gpu.hopper [RESULT.json]``; exit status 1 if any answer is off.

Lengths on, below and above every tile; groups of 1, 4 and 8 query heads; causal offsets; fp16 and bf16; d 64 and 128;
and 50 launches of one call, which must agree to the bit. Each kernel has a process and a deadline: a barrier that is
never arrived at hangs, and a hang is an answer too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import flashkit  # noqa: F401  before Triton
from tests.gpu.judge import DTYPES, Shape, allowed_error, attention, honest, tensors
from tests.labs.kernels import load

SECONDS = 300
REPEATS = 50
SEED = 7
LENGTHS = (1, 63, 64, 65, 127, 1000, 1025, 4096)
GROUPS = (1, 4, 8)
KERNELS = {  # exercise: its function takes a causal mask, its tiles are the caller's
    "07.descriptors": (True, True),
    "07.wgmma": (False, False),
    "07.producer": (False, False),
    "07.consumers": (False, False),
    "07.two_products": (False, False),
    "07.gluon": (True, False),
}


@dataclass(frozen=True)
class Row:
    """One call's verdict: the largest error of o, what is allowed, and whether lse is right."""

    shape: dict
    error: float
    allowed: float
    lse_right: bool
    right: bool


def shapes(causal: bool) -> list[Shape]:
    """Every length in both dtypes and head dimensions; each group, offset and layout with some of them."""
    found = []
    for number, n in enumerate(LENGTHS):
        for dtype in ("fp16", "bf16"):
            for d in (64, 128):
                offset = 0 if causal and (number + d // 64) % 2 else None
                found.append(_shape(n, n, dtype, d, offset, GROUPS[number % 3]))
    found += [_shape(1, 4096, "bf16", 128, None, 8), _shape(4096, 1, "fp16", 64, None, 4)]
    if causal:
        sizes = ((1000, 1025, 25), (1025, 1000, -25), (130, 600, 433), (300, 250, -77), (1, 4096, 4095), (63, 65, 2))
        found += [_shape(q, k, "bf16", d, offset, 4) for q, k, offset in sizes for d in (64, 128)]
    found.append(_shape(1000, 1000, "bf16", 128, 0 if causal else None, 4, bshd=True))
    return found


def _shape(N_q: int, N_k: int, dtype: str, d: int, offset: int | None, group: int, bshd: bool = False) -> Shape:
    return Shape(N_q, N_k, dtype, offset, B=2, H_q=8, H_kv=8 // group, d=d, d_v=d, block_q=128, block_k=64, bshd=bshd)


def call(id: str, function: Callable, shape: Shape, x: tuple) -> tuple[torch.Tensor, torch.Tensor]:
    causal, tiled = KERNELS[id]
    mask = (shape.offset is not None, shape.offset or 0) if causal else ()
    return function(*x, *mask, shape.d**-0.5, *((shape.block_q, shape.block_k) if tiled else ()))


def judge(id: str, function: Callable, shape: Shape, device: str = "cuda") -> Row:
    """One call against float64; its error may be twice an honest low-precision run's, lse that of fp32 sums."""
    x = tensors(shape, SEED, device)
    o, lse = call(id, function, shape, x)
    reference, lse_reference = attention(*x, shape, torch.float64)
    seen, error = torch.isfinite(lse_reference), (o.double() - reference).abs().max().item()
    allowed = allowed_error(reference, honest(*x, shape), DTYPES[shape.dtype])
    off = (lse.double() - lse_reference)[seen].abs() > 2e-5 * (1 + lse_reference[seen].abs())
    lse_right = bool(torch.equal(torch.isneginf(lse), ~seen)) and not bool(off.any())
    right = error <= allowed and bool(torch.isfinite(o).all()) and lse_right
    return Row(asdict(shape), error, allowed, lse_right, right)


def repeats(id: str, function: Callable, shape: Shape, device: str = "cuda", times: int = REPEATS) -> bool:
    """Do ``times`` launches of one call agree to the bit? A race seldom shows twice in the same way."""
    x = tensors(shape, SEED, device)
    first = call(id, function, shape, x)
    again = (call(id, function, shape, x) for _ in range(times - 1))
    return all(torch.equal(a, b) for outputs in again for a, b in zip(first, outputs, strict=True))


def one(id: str) -> dict:
    """All of one kernel, in this process."""
    function, causal = load(id, "solution"), KERNELS[id][0]
    rows = [judge(id, function, shape) for shape in shapes(causal)]
    large = [_shape(n, n, "bf16", d, 0 if causal else None, 4) for n in (1025, 4096) for d in (64, 128)]
    return {"rows": [asdict(row) for row in rows], "bitwise": [repeats(id, function, shape) for shape in large]}


def in_a_child(id: str) -> dict:
    try:
        command = [sys.executable, "-m", "tests.gpu.hopper", "--one", id]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"ended": f"It hangs: no answer within {SECONDS} s.", "rows": [], "bitwise": []}
    if done.returncode:
        return {"ended": " ".join(done.stderr.strip().splitlines()[-1:]), "rows": [], "bitwise": []}
    return {"ended": "", **json.loads(done.stdout.splitlines()[-1])}


def passed(result: dict) -> bool:
    right = bool(result["rows"]) and all(row["right"] for row in result["rows"])
    return right and all(result["bitwise"]) and not result["ended"]


def main(path: str = "benchmarks/results/hopper-correctness.json") -> int:
    from benchmarks.records import provenance

    if torch.cuda.get_device_capability()[0] != 9:
        print("tests.gpu.hopper: this GPU is no Hopper, so nothing was run")
        return 0
    results = {id: in_a_child(id) for id in KERNELS}
    record = {"what": "lab 07's kernels against float64", **provenance(), "repeats": REPEATS, "kernels": results}
    Path(path).write_text(json.dumps(record, indent=1) + "\n")
    for id, result in results.items():
        right = sum(row["right"] for row in result["rows"])
        print(f"{id}: {right} of {len(result['rows'])} right, bitwise {result['bitwise']} {result['ended']}")
    return int(not all(map(passed, results.values())))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(sys.argv[2])))
    else:
        sys.exit(main(*sys.argv[1:]))
