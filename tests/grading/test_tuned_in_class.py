"""05.tuned as a class's grader judges it: honest choices, forged claims, and compilers that are not there."""

import pytest

import flashkit  # noqa: F401  comes before triton
from flashkit import exercises
from flashkit.exercises import lab_cells
from flashkit.grading import claimed_kernels, settings
from flashkit.grading.judge import Examiner
from flashkit.grading.room import CodeCell
from tests.labs.kernels import ROOT

pytestmark = pytest.mark.classroom
TUNED = exercises.get("05.tuned")
SOLUTION = lab_cells.course_source("05.tuned")
FORGED = """
from flashkit.instruments import compile_gate

honest = compile_gate.describe


def describe(launch, arch=90):
    claim = honest(launch, arch)
    source = claim["source"]
    line = "print('this runs in the compiler')"
    return {**claim, "source": {**source, "text": source["text"] + line + "\\n", "lines": [*source["lines"], None]}}


compile_gate.describe = describe
"""
SILENT = """
from flashkit.instruments import compile_gate

compile_gate.describe = lambda launch, arch=90: {"name": "kernel", "source": {"text": "_constexprs = {}"}}
"""


def judged(*sources):
    submission = [CodeCell(f"cell_{number}.py", source) for number, source in enumerate(sources)]
    with Examiner(submission, settings.load(ROOT), b"a seed of this test") as examiner:
        return examiner.examine(TUNED, len(submission))()


@pytest.mark.parametrize(
    ("forgery", "said"), [(FORGED, "more than define"), pytest.param(SILENT, "no tl.constexpr", marks=pytest.mark.slow)]
)
def test_a_forged_claim_is_pending_and_earns_nothing(forgery, said):
    result = judged(SOLUTION, forgery)
    assert result.report.verdict == "right"
    assert (result.report.points, result.pending) == (0.0, TUNED.points)
    assert all(choice.holds is None and said in choice.why for choice in result.report.choices)


@pytest.mark.slow
def test_wrong_answers_have_no_choices_and_nothing_is_pending():
    result = judged(SOLUTION.replace("d**-0.5", "1.0"))
    assert (result.report.verdict, result.report.points, result.pending) == ("wrong", 0.0, 0.0)
    assert result.report.choices == []


@pytest.mark.slow
def test_the_solutions_choices_get_all_points():
    result = judged(SOLUTION)
    assert (result.report.points, result.pending) == (TUNED.points, 0.0), str(result.report)


@pytest.mark.slow
def test_a_choice_that_no_gpu_of_its_kind_can_run_costs_its_share():
    result = judged(SOLUTION.replace("120: (128, 64, 8, 3)", "120: (128, 128, 8, 3)"))
    assert (result.report.points, result.pending) == (25.0, 0.0), str(result.report)
    assert "out of resource" in str(result.report)


def test_where_no_compiler_answers_all_is_pending(monkeypatch):
    def nobody(sources, limits):
        from flashkit.instruments.resources import Resources

        return lambda asked: (Resources("kernel", arch, "unavailable", message="no compiler") for _, arch in asked)

    monkeypatch.setattr(claimed_kernels, "compiler", nobody)
    result = judged(SOLUTION)
    assert (result.report.points, result.pending) == (0.0, TUNED.points)
