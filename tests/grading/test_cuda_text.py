"""CUDA C++ in a class: the text leaves the sandbox, is compiled in another and earns its share; no file leaks."""

import pytest

from flashkit import exercises
from flashkit.exercises.lab_cells import MARKER, graded_cells
from flashkit.grading import compile_apart, settings
from flashkit.grading.judge import Examiner
from flashkit.grading.room import CodeCell
from flashkit.runtime.call import TEXT_LIMIT
from tests.classroom.classroom import ROOT

pytest.importorskip("cuda.core", reason="cuda-core is not installed")
pytestmark = pytest.mark.classroom

LAB = graded_cells(ROOT / "solutions" / "02_online_softmax" / "02_online_softmax.ipynb")
SOLUTION = MARKER.sub("", LAB["kernel-02-cuda"])
EXERCISE = exercises.get("02.cuda")
INCLUDED = (ROOT / "flashkit" / "exercises" / "online_softmax.py", ROOT / "grader_config.py", "/etc/passwd")


def changed(old: str, new: str) -> str:
    assert SOLUTION.count(old) == 1, old
    return SOLUTION.replace(old, new)


def returning(text: str) -> str:
    return f"def online_row_softmax_cuda():\n    return {text}, 256"


ANSWERS = {
    "solution": SOLUTION,
    "broken": changed("l = l * expf(m - m_new)", "l = l * exqf(m - m_new)"),
    "blank": changed("    float m_new = fmaxf(m, m_b);", "    raise NotImplementedError()"),
    "threads": changed("return SOURCE, 256", "return SOURCE, 100"),
    "long": returning(f"'x' * {TEXT_LIMIT + 1}"),
    **{f"include {number}": returning(f"'#include \"{path}\"\\n'") for number, path in enumerate(INCLUDED)},
}


@pytest.fixture(scope="module")
def examiner():
    """One sandbox for all answers: each stands in a cell below the last."""
    cells = [CodeCell("imports", LAB["imports"]), *(CodeCell(name, text) for name, text in ANSWERS.items())]
    with Examiner(cells, settings.load(ROOT), b"seed") as examiner:
        yield examiner


@pytest.fixture(scope="module")
def reports(examiner):
    """What each answer earns, by its name."""
    judged = {name: examiner.examine(EXERCISE, upto) for upto, name in enumerate(ANSWERS, start=2)}
    return {name: done() for name, done in judged.items()}


def test_what_compiles_earns_its_share_and_nothing_of_it_is_pending(reports):
    judged = reports["solution"]
    assert (judged.report.verdict, judged.report.points, judged.pending) == ("not judged", EXERCISE.points, 0)
    assert [(c.ok, c.arch) for c in judged.report.compiled] == [(True, arch) for arch in EXERCISE.cuda.archs]
    assert "It compiles" in str(judged.report) and "answers and time (02.cuda.gpu)" in judged.report.pending


@pytest.mark.parametrize(
    ("name", "verdict", "said"),
    [
        ("broken", "will not compile", "`exqf` is not known here"),
        ("blank", "crashed", "not filled in yet"),
        ("threads", "wrong", "whole warps of 32"),
        ("long", "wrong", "at most 131,072 are taken"),
    ],
)
def test_what_is_wrong_is_said_and_earns_nothing(reports, name, verdict, said):
    judged = reports[name]
    assert (judged.report.verdict, judged.report.points, judged.pending) == (verdict, 0, 0)
    assert said in str(judged.report)


def test_the_students_own_line_is_shown_with_its_cell(reports):
    at = reports["broken"].report.student_line()
    assert at.where == "broken" and "exqf(m - m_new)" in at.line


@pytest.mark.parametrize("number", range(len(INCLUDED)))
def test_no_file_of_the_machine_is_read_into_the_report(reports, number):
    judged = reports[f"include {number}"]
    assert judged.report.verdict == "will not compile"
    assert "cannot open source file" in judged.report.compiled[0].message


def test_where_no_compiler_can_be_started_the_points_are_pending(examiner, monkeypatch):
    monkeypatch.setattr(compile_apart, "compiler_command", lambda folder, limits: ["/no/such/program", "x", "y"])
    judged = examiner.examine(EXERCISE, 2)()
    assert (judged.report.verdict, judged.report.points, judged.pending) == ("not judged", 0, EXERCISE.points)
    assert "It compiles" not in str(judged.report)
