"""Planted faults of lab 00: each mistake of 00.add in two spellings."""

from __future__ import annotations

from tests.labs.mutant import Mutant


def mutant(fault: str, *patch: tuple[str, str], on: str = "00.add", note: str = "") -> Mutant:
    return Mutant(fault, "solution", patch, on, note)


LOAD_X = "tl.load(x_ptr + lanes, mask=mask, other=0.0)"
LOAD_Y = "tl.load(y_ptr + lanes, mask=mask, other=0.0)"
STORE = "tl.store(out_ptr + lanes, x + y, mask=mask)"
LANES = "lanes = pid * block + tl.arange(0, block)"
GRID = "grid = (triton.cdiv(n, block),)"

MUTANTS = (
    mutant("tail-mask-missing", ("mask = lanes < n", "mask = lanes < n + block")),
    mutant("tail-mask-missing", (STORE, "tl.store(out_ptr + lanes, x + y)")),
    mutant("tail-mask-missing", (LOAD_X, "tl.load(x_ptr + lanes)")),
    mutant("tail-lost", (GRID, "grid = (max(1, n // block),)"), note="a grid rounded down"),
    mutant("tail-lost", ("mask = lanes < n", "mask = lanes < n // block * block"), note="only whole blocks"),
    mutant("race", (GRID, "grid = (triton.cdiv(n, block), 2)")),
    mutant("race", (LANES, "lanes = tl.maximum(pid * block - 1, 0) + tl.arange(0, block)"), note="overlapping blocks"),
    mutant("x-twice", (LOAD_Y, LOAD_X)),
    mutant("x-twice", ("x + y, mask=mask", "2.0 * x, mask=mask")),
    mutant("x-twice", ("x + y, mask=mask", "y + y, mask=mask")),
    mutant("subtracted", ("x + y, mask=mask", "x - y, mask=mask")),
    mutant("subtracted", (LOAD_X, "-" + LOAD_X)),
    mutant("one-operand", ("x + y, mask=mask", "x, mask=mask")),
    mutant("one-operand", (LOAD_X, "tl.zeros((block,), tl.float32)")),
    mutant("first-block-only", (LOAD_X, LOAD_X.replace("lanes,", "lanes % block,")),
           (LOAD_Y, LOAD_Y.replace("lanes,", "lanes % block,"))),
    mutant("first-block-only", (LOAD_X, LOAD_X.replace("lanes,", "tl.arange(0, block),")),
           (LOAD_Y, LOAD_Y.replace("lanes,", "tl.arange(0, block),"))),
)  # fmt: skip
