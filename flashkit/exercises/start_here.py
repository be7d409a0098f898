"""Lab 00: the first kernel, x + y with a tail. Exercise 00.add."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flashkit.exercises import timed
from flashkit.exercises.contract import Case, Exercise, Fault, Timed
from flashkit.runtime.call import Argument, Call, Returned


def inputs(case: Case) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(case.seed)
    return {name: rng.standard_normal(case.sizes["n"]).astype(np.float32).astype(np.float64) for name in "xy"}


def call(case: Case) -> Call:
    tensors = {name: Argument(x, "fp32") for name, x in inputs(case).items()}
    return Call(tensors, dict(case.options), (Returned("out", (case.sizes["n"],), "fp32"),))


def oracle(case: Case) -> dict[str, np.ndarray]:
    return {"out": sum(inputs(case).values())}


def honest(case: Case) -> list[dict[str, np.ndarray]]:
    x, y = (a.astype(np.float32) for a in inputs(case).values())
    return [{"out": (x + y).astype(np.float64)}]


def wrong(case: Case, variant) -> dict[str, np.ndarray]:
    return {"out": variant(*inputs(case).values())}


def meter_says(case: Case, finding) -> str:
    n, block = case.sizes["n"], case.options["block"]
    if finding.kind == "unwritten":
        return "tail-lost" if finding.index[0] >= n // block * block else ""
    past_the_end = finding.kind == "outside" and n <= finding.index[0] < -(-n // block) * block
    return "tail-mask-missing" if past_the_end else "race" if finding.kind == "race" else ""


def draw(seed: int) -> tuple[Case, ...]:
    rng = np.random.default_rng(seed)
    return tuple(
        replace(case, sizes={"n": int(n)}, seed=int(rng.integers(2**31)))
        for case, n in zip(
            CASES, (int(rng.integers(2, 9)) * 32, rng.integers(65, 90), rng.integers(2, 31)), strict=True
        )
    )


CASES = (
    Case("whole blocks", {"n": 128}, {"block": 32}, seed=1),
    Case("a tail", {"n": 77}, {"block": 32}, seed=2),
    Case("shorter than a block", {"n": 5}, {"block": 32}, seed=3),
)

ADD = Exercise(
    id="00.add",
    title="Add two vectors, with a tail",
    points=5,
    minutes=5,
    difficulty=1,
    signature="add(x, y, block) -> out    # x, y, out (n,) fp32; block is a power of two",
    call=call,
    oracle=oracle,
    honest=honest,
    wrong=wrong,
    cases=CASES,
    draw=draw,
    faults=(
        Fault(
            "tail-mask-missing",
            "the last block's lanes past the end of the vector are not masked",
            "77 elements in blocks of 32: what do the lanes 77 to 95 load and store?",
        ),
        Fault("tail-lost", "the last, partial block is never computed", "77 / 32 is 2.4: how many programs are that?"),
        Fault("race", "two programs write the same element", "Which elements belong to program pid?"),
        Fault(
            "x-twice", "x is added to itself", "Check both load addresses.", (lambda x, y: 2 * x, lambda x, y: 2 * y)
        ),
        Fault("subtracted", "y is subtracted", "Check the sign.", (lambda x, y: x - y, lambda x, y: y - x)),
        Fault("one-operand", "one operand is stored as it is", "Is the sum stored?", (lambda x, y: x, lambda x, y: y)),
        Fault(
            "first-block-only",
            "every program reads the first block",
            "The lanes of program pid start at pid * block.",
            (lambda x, y: (x + y)[np.arange(len(x)) % 32],),
        ),
    ),
    budget=lambda case: dict.fromkeys(("x", "y", "out"), 4 * case.sizes["n"]),
    least=lambda case: dict.fromkeys(("x", "y", "out"), 4 * case.sizes["n"]),
    hints=(
        "Program pid handles the lanes pid * block + tl.arange(0, block).",
        "mask = lanes < n belongs to both loads and to the store.",
        "The grid has triton.cdiv(n, block) programs.",
    ),
    meter_says=meter_says,
    timed=Timed(timed.VECTOR, timed.add, timed.vectors),
)

EXERCISES = (ADD,)
