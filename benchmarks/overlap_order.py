"""Where the compiler puts the wait of the overlapped Gluon kernel: ``python -m benchmarks overlap_order``.

No GPU is needed. The solution of 07.two_products is compiled for sm_90, and its consumers' loops are read in PTX and in
machine code (nvdisasm): which exponentials stand before the wait for both products, and which after it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
import triton

from flashkit.exercises import lab_cells
from flashkit.instruments import compile_gate, dry_run
from flashkit.instruments.record import Launch

RESULT = Path(__file__).parent / "results" / "overlap-order.json"
SHAPE = (1, 1, 1024, 128)
SECONDS = 120
MARKS = {  # what is looked for, in PTX and in SASS
    "product": (re.compile(r"\bwgmma\.mma_async"), re.compile(r"\bHGMMA\b")),
    "exp": (re.compile(r"\bex2\.approx"), re.compile(r"\bMUFU\.EX2\b")),
    "wait": (re.compile(r"\bwgmma\.wait_group\S*\s+(\d+)"), re.compile(r"\bWARPGROUP\.DEPBAR\.LE gsb0, 0x(\d+)")),
}


def launch() -> Launch:
    """The kernel's launch as its function makes it, on tensors without data."""
    function = lab_cells.solution("07.two_products", "gluon_two_products")
    q, k, v = (torch.empty(SHAPE, dtype=torch.bfloat16, device="meta") for _ in "qkv")
    (only,) = dry_run.launches(function, q, k, v, SHAPE[-1] ** -0.5)
    return only


def compiled(what: Launch) -> tuple[str, str]:
    """PTX and machine code for sm_90."""
    told = compile_gate.describe(what, 90)
    with tempfile.TemporaryDirectory(prefix="overlap-order-") as name:
        folder = Path(name)
        (folder / "module.py").write_text(told["source"]["text"])
        (folder / "request.json").write_text(json.dumps({**told["request"], "listing": True}))
        clean = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
        command = [sys.executable, "-I", str(compile_gate.CHILD), name]
        said = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=SECONDS)
        if not json.loads(said.stdout or "{}").get("ok"):
            raise RuntimeError(f"07.two_products did not compile for sm_90: {said.stdout or said.stderr}"[:600])
        disassembler = str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm")
        command = [disassembler, "-c", str(folder / "kernel.cubin")]
        sass = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout
        return (folder / "kernel.ptx").read_text(), sass


def events(lines: Iterable[str], column: int) -> list[str]:
    """Products, exponentials and waits in the order of the text: "product", "exp", "wait 1"."""
    found = []
    for line in lines:
        for name, patterns in MARKS.items():
            if match := patterns[column].search(line):
                found.append(f"wait {match[1]}" if name == "wait" else name)
    return found


def overlapped(found: list[str]) -> list[list[str]]:
    """What follows each wait that leaves one product running, until the next product is queued."""
    starts = [at for at, event in enumerate(found) if event == "wait 1"]
    ends = [next((n for n in range(at, len(found)) if found[n] == "product"), len(found)) for at in starts]
    return [found[at:end] for at, end in zip(starts, ends, strict=True)]


def order(found: list[str]) -> dict[str, list[int]]:
    """For each consumer's loop: exponentials before the wait for both products, and after it."""
    waits = [(loop, loop.index("wait 0")) for loop in overlapped(found)]
    return {"before": [loop[:at].count("exp") for loop, at in waits],
            "after": [loop[at:].count("exp") for loop, at in waits]}  # fmt: skip


def main() -> int:
    ptx, sass = compiled(launch())
    record = {
        "what": "exponentials of a thread before and after the wait for both products, by consumer",
        "kernel": "solutions/07_fa3_pipelines: 07.two_products, d = 128, bf16, key blocks of 128, sm_90",
        "triton": triton.__version__,
        "ptx": order(events(ptx.splitlines(), 0)),
        "sass": order(events(sass.splitlines(), 1)),
    }
    RESULT.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))
    return 0
