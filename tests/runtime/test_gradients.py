"""Gradients of a call's output: what a function that cannot be differentiated is told, layouts of dO, the wire."""

import numpy as np
import pytest
import torch

import flashkit  # noqa: F401  comes before torch and triton
from flashkit import exercises
from flashkit.runtime import wire
from flashkit.runtime.call import Argument
from flashkit.runtime.placement import place
from flashkit.runtime.runner import run

EXERCISE = exercises.get("04.attention")
CALL = EXERCISE.call(next(case for case in EXERCISE.cases if case.why == "one tile"))


def test_the_upstream_gradient_is_not_passed_and_gradients_follow_the_output():
    assert list(CALL.tensors) == ["q", "k", "v", "do"] and CALL.upstream == "do"
    assert [r.name for r in CALL.returned] == ["o"] and [r.name for r in CALL.gradients] == ["dq", "dk", "dv"]


def test_an_output_that_autograd_does_not_know_is_told_so():
    problem = run(lambda q, k, v, **options: torch.zeros_like(q), CALL, show=False).problem
    assert problem.verdict == "wrong" and "o does not depend on the inputs" in problem.sentence


def test_a_missing_gradient_is_named():
    problem = run(lambda q, k, v, **options: q * 1.0 + k * 0.0, CALL, show=False).problem
    assert problem.verdict == "wrong" and "no gradient for v" in problem.sentence


@pytest.mark.parametrize(("layout", "strides"), [("expanded", (0, 0, 0, 0)), ("one-row", (0, 0, 0, 1))])
def test_layouts_of_stride_0_hold_their_values(layout, strides):
    values = np.broadcast_to(np.full(8, 3.0) if layout == "expanded" else np.arange(8.0), (2, 3, 5, 8))
    tensor = place(Argument(values, "fp32", layout))
    assert tensor.stride() == strides and np.array_equal(tensor.numpy(), values)


def test_the_wire_keeps_the_upstream_gradient():
    assert wire.read_call(*wire.call_header(CALL)).upstream == "do"
