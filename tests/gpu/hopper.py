"""Lab 07's kernels on a Hopper GPU: ``python -m tests.gpu.hopper [RESULT.json]``; exit status 1 if any answer is off.

Lengths on, below and above every tile; groups of 1, 4 and 8 query heads; causal offsets; fp16 and bf16; d 64 and 128;
and 50 launches of one call, which must agree to the bit. Processes share the cases and each case has a deadline: a
barrier that is never arrived at hangs, and a hang is an answer too. The record is written after every case.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import flashkit  # noqa: F401  before Triton
from benchmarks import children
from tests.gpu.judge import DTYPES, Shape, allowed_error, attention, honest, tensors
from tests.labs.kernels import load

SECONDS = 120  # for a case: its kernel is compiled first
JOBS = {"07.gluon": 6}  # processes of a kernel, most of whose time is the compiler's; 2 of the others
AT_ONCE = 16
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


def repeated(causal: bool) -> list[Shape]:
    """The calls that are launched again and again."""
    return [_shape(n, n, "bf16", d, 0 if causal else None, 4) for n in (1025, 4096) for d in (64, 128)]


def cases(id: str) -> list[str]:
    """What is judged of a kernel, by name: "07.gluon shape 3", "07.gluon repeats 0"."""
    causal = KERNELS[id][0]
    every = {"shape": shapes(causal), "repeats": repeated(causal)}
    return [f"{id} {what} {number}" for what, found in every.items() for number in range(len(found))]


def jobs() -> list[list[str]]:
    """The cases dealt out to processes; the kernel that takes longest to compile comes first."""
    shares = [(cases(id), JOBS.get(id, 2)) for id in reversed(KERNELS)]
    return [names[part::parts] for names, parts in shares for part in range(parts)]


def one(case: str) -> dict:
    """A case by its name, in this process: a row, or whether all repeats agree."""
    id, what, number = case.split()
    function, causal = load(id, "solution"), KERNELS[id][0]
    if what == "repeats":
        return {"same": repeats(id, function, repeated(causal)[int(number)])}
    return asdict(judge(id, function, shapes(causal)[int(number)]))


def passed(result: dict) -> bool:
    right = bool(result["rows"]) and all(row["right"] for row in result["rows"])
    return right and all(result["bitwise"]) and not result["ended"]


def add(results: dict, found: dict) -> None:
    """Files a case's answer under its kernel."""
    result = results[found["case"].split()[0]]
    if "ended" in found:
        result["ended"].append(found)
    elif "same" in found:
        result["bitwise"].append(found["same"])
    else:
        result["rows"].append(found)


def main(path: str = "benchmarks/results/hopper-correctness.json") -> int:
    from benchmarks.records import need_hopper, provenance

    need_hopper()
    results = {id: {"rows": [], "bitwise": [], "ended": []} for id in KERNELS}
    record = {"what": "lab 07's kernels against float64", **provenance(), "repeats": REPEATS, "kernels": results}
    left = sum(map(len, jobs()))

    def told(found: dict) -> None:
        nonlocal left
        left -= 1
        add(results, found)
        Path(path).write_text(json.dumps(record, indent=1) + "\n")
        right = found.get("right", found.get("same", False))
        if not right or left % 20 == 0:
            print(f"{found['case']} right, {left} cases left" if right else f"NOT RIGHT {found}", flush=True)

    children.run("tests.gpu.hopper", jobs(), SECONDS, told, AT_ONCE)
    for id, result in results.items():
        right = sum(row["right"] for row in result["rows"])
        print(f"{id}: {right} of {len(shapes(KERNELS[id][0]))} right, bitwise {result['bitwise']} {result['ended']}")
    return int(not all(map(passed, results.values())))


if __name__ == "__main__":
    sys.exit(children.start(main, one))
