"""Predicted against measured time on an H200: ``python -m benchmarks.prediction``, on the GPU machine.

Words (fit, test, sweep, control, neighbour) choose a part. What was measured is kept whole in a raw file;
``python -m benchmarks.report RAW`` sets the predictions beside it, on any machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import torch

from benchmarks import machine
from benchmarks.cases import FIT, TEST, Case, buffers, call, solution
from benchmarks.collect import collect
from benchmarks.records import RESULTS, provenance
from flashkit.instruments.gpu_clock import GPU
from flashkit.instruments.timing import compare

SWEPT = (Case("sweep", "forward", 4096, 64, B=4, H=16), Case("sweep", "forward", 4096, 128, B=2, H=16))
SWEEP = [
    (Case(**{**asdict(case), "block_q": block_q, "block_k": block_k}), {"num_warps": warps, "num_stages": stages})
    for case in SWEPT
    for block_q in (32, 64, 128)
    for block_k in (32, 64, 128)
    for warps in (4, 8)
    for stages in (1, 2, 3, 4)
]
CONTROLLED = (FIT[0], FIT[5], FIT[8], FIT[11])
NEIGHBOUR = """
import random, time, torch
x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
while True:
    for _ in range(random.randint(1, 20)):
        x @ x
    torch.cuda.synchronize()
    time.sleep(random.random() * 0.05)
"""


def controls() -> list[dict]:
    """Each kernel against itself: a ratio of 1, and how far from it this GPU and timer are."""
    found = []
    for case in CONTROLLED:
        tensors = buffers(case, "cuda")
        one = call(case, solution(case.kernel), tensors)
        timing = compare(one, one, GPU(tensors), show=lambda done, total: None)
        found.append({"kernel": case.kernel, "shape": case.shape, **asdict(timing)})
    return found


def neighbour() -> dict:
    """The same with another process at random work on the GPU, which the timer is told not to look for."""
    case = FIT[5]
    tensors = buffers(case, "cuda")
    gpu, one = GPU(tensors), call(case, solution(case.kernel), tensors)
    child = subprocess.Popen([sys.executable, "-c", NEIGHBOUR])
    try:
        torch.cuda.synchronize()
        while not gpu.busy() and child.poll() is None:
            pass
        seen = gpu.busy()
        gpu.busy = lambda: ""
        timing = compare(one, one, gpu, show=lambda done, total: None)
    finally:
        child.kill()
        child.wait()
    return {"kernel": case.kernel, "shape": case.shape, "busy_said": seen, **asdict(timing)}


def main(*words: str) -> int:
    wanted = words or ("fit", "test", "sweep", "control", "neighbour")
    RESULTS.mkdir(parents=True, exist_ok=True)
    found = provenance() | {"machine": machine.measure()}
    print(json.dumps(found, indent=1), flush=True)
    if "control" in wanted:
        found["controls"] = controls()
    for role, jobs in (("fit", [(c, {}) for c in FIT]), ("test", [(c, {}) for c in TEST]), ("sweep", SWEEP)):
        if role in wanted:
            found[role] = collect(jobs)
            for record in found[role]:
                print(role, record["case"], record["options"], record.get("seconds", record["trouble"]), flush=True)
            (RESULTS / "prediction-raw.json").write_text(json.dumps(found))
    if "neighbour" in wanted:
        found["neighbour"] = neighbour()
    (RESULTS / "prediction-raw.json").write_text(json.dumps(found))
    for control in found.get("controls", []):
        print(control["kernel"], control["shape"], control["verdict"], control["ratio"], control["control"])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
