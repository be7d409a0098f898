"""A kernel is compiled only if its source is the submission's own and importing it runs nothing."""

import pytest

from flashkit.grading import compile_apart
from flashkit.grading.sandbox import Limits
from flashkit.instruments import compile_gate


@pytest.fixture(scope="module")
def claim():
    """What a child says of the warm-up's launch, as if its source stood in a cell."""
    from flashkit.runtime import warm as module  # not at the top: it needs the interpreter

    outcome = module.warm()
    assert outcome.problem is None and outcome.launches
    described = compile_gate.describe(outcome.launches[0])
    with open(module.__file__) as file:
        return described, {"warm.py": file.read()}


def answer(claim, cells):
    return compile_apart.start_kernel(claim, cells, Limits()).result(60)


@pytest.mark.classroom
def test_an_honest_claim_compiles(claim):
    result = answer(*claim)
    assert result.ok and result.registers and result.arch == 90


def changed(claim, **source):
    described, cells = claim
    return {**described, "source": {**described["source"], **source}}, cells


def test_a_source_that_is_not_in_the_submission_is_not_compiled(claim):
    described, _ = claim
    result = answer(described, {"warm.py": "nothing"})
    assert (result.kind, result.message) == ("unavailable", "Its source is not the submission's.")


def test_lines_that_nobody_wrote_are_not_compiled(claim):
    lines = [None] * len(claim[0]["source"]["lines"])
    assert answer(*changed(claim, lines=lines)).kind == "unavailable"


@pytest.mark.parametrize(
    "line",
    [
        "print('hello')",
        "x = __import__('os').system('true')",
        "import os",
        "class A: pass",
        "x = (lambda: 1)()",
        "for i in range(3): pass",
    ],
)
def test_a_module_that_would_run_code_is_not_compiled(claim, line):
    source = claim[0]["source"]
    changes = {"text": source["text"] + line + "\n", "lines": [*source["lines"], None]}
    result = answer(*changed(claim, **changes))
    assert result.kind == "unavailable" and "more than define" in result.message


@pytest.mark.parametrize("claimed", [{}, {"name": 3}, {"source": None}, {"source": {}}, {"kind": "ok", "error": 1}])
def test_a_claim_that_makes_no_sense_is_not_judged(claimed):
    assert answer(claimed, {}).kind == "unavailable"
