"""What a child claims of its launches: read carefully, and compiled only as compile_apart allows."""

import pytest

import flashkit  # noqa: F401  comes before triton
from flashkit import exercises
from flashkit.check.choices import candidate_of, judge
from flashkit.check.grid import _launched
from flashkit.grading.claimed_kernels import Claimed, compiler
from flashkit.grading.sandbox import Limits
from flashkit.instruments import compile_gate
from tests.labs.kernels import base_source, load

TUNING = exercises.get("05.tuned").tuning


@pytest.fixture(scope="module")
def claim():
    """An honest claim, and the submission's cells that hold its source."""
    launched = _launched(TUNING, load("05.forward", "solution"), (64, 64, 4, 2))
    claim = compile_gate.describe(launched.launch, 90)
    where = next(line[0] for line in claim["source"]["lines"] if line)
    return claim, {where: base_source("05.forward", "solution")}


def test_an_honest_claim_says_its_choice(claim):
    kernel = Claimed(claim[0])
    assert candidate_of(kernel) == (64, 64, 4, 2) and kernel.constants["d"] == 128


def test_another_choice_changes_the_constants_and_the_options_alone(claim):
    again = Claimed(claim[0]).relaunched((128, 32, 8, 3))
    assert candidate_of(again) == (128, 32, 8, 3) and again.constants["d"] == 128
    ours, theirs = (c["source"]["text"].splitlines() for c in (claim[0], again.claim))
    assert len(ours) == len(theirs) and sum(a != b for a, b in zip(ours, theirs, strict=True)) == 1
    assert claim[0]["request"]["options"] == {"num_warps": 4, "num_stages": 2}


@pytest.mark.parametrize(
    "claimed",
    [
        {},
        {"source": None, "request": 3},
        {"source": {"text": 3}},
        {"source": {"text": "_constexprs = [1, 2]"}, "request": {"options": []}},
        {"source": {"text": "_constexprs = {(): 1}"}, "request": {"options": {"num_warps": "many"}}},
        {"source": {"text": "_constexprs = " + "(" * 300}},
        {"source": {"text": "nothing of the kind"}},
        {"source": {"text": "_constexprs = " + "-" * 100_000 + "1"}},
        {"source": {"text": "_constexprs = {'block_q': True, 'block_k': 64.0}"}},
    ],
)
def test_a_claim_that_makes_no_sense_has_no_choice(claimed):
    (choice,) = judge(TUNING, {90: [Claimed(claimed)]}, compiler({}, Limits()))
    assert choice.holds is None and choice.candidate is None


def test_a_claim_that_breaks_while_it_is_changed_is_not_compiled():
    text = "_constexprs = {'block_q': 64, 'block_k': 64, 'deep': " + "-" * 900 + "1}"
    kernel = Claimed({"source": {"text": text}, "request": {"options": []}})
    assert candidate_of(kernel) == (64, 64, 4, 3) and kernel.relaunched((128, 64, 8, 2)) == Claimed({})


def test_foreign_source_is_not_compiled(claim):
    (choice,) = judge(TUNING, {90: [Claimed(claim[0])]}, compiler({"cell": "nothing"}, Limits()))
    assert choice.holds is None and "not the submission's" in choice.why


@pytest.mark.classroom
def test_an_honest_claim_is_judged_for_its_own_architecture(claim):
    found = judge(TUNING, {86: [Claimed(claim[0])], 90: [Claimed(claim[0])]}, compiler(claim[1], Limits()))
    assert [choice.row.arch for choice in found] == [86, 90]
    assert all(choice.holds is not None and choice.row.registers for choice in found)
    assert found[0].row.shared < found[1].row.shared
