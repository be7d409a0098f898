"""One kernel on the GPU in its own process: ``python -m tests.gpu.one FILE FUNCTION all|small``, JSON on stdout."""

from __future__ import annotations

import json
import sys

import torch
import triton

from flashkit.exercises.lab_cells import load
from tests.gpu.judge import LARGE, SHAPES, judge


def main(path: str, function: str, which: str) -> None:
    with open(path) as file:
        kernel = load(file.read(), function)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    rows = []
    for shape in SHAPES:
        if which == "small" and shape in LARGE:
            continue
        try:
            rows.append(judge(kernel, shape, seed=7))
        except Exception as error:  # a launch that the compiler or the device refuses is a result
            rows.append({**vars(shape), "right": False, "raised": f"{type(error).__name__}: {str(error)[:200]}"})
        if which == "small" and not rows[-1]["right"]:
            break
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
