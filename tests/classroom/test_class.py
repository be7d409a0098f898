"""A class through nbgrader's own commands: everyone gets what they earned, whatever the others did."""

import hashlib
import json
import re
import subprocess

import pytest

from tests.classroom.classroom import CHECKS, LAB, Classroom
from tests.classroom.students import CLASS, POINTS

pytestmark = [pytest.mark.classroom, pytest.mark.xdist_group("classroom"), pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The class after `nbgrader autograde`, `generate_feedback` and `export`."""
    room = Classroom(tmp_path_factory.mktemp("course") / "class")
    solutions = json.loads((room.folder / "solutions" / LAB / f"{LAB}.ipynb").read_text())
    for student in CLASS:
        room.hand_in(student.name, student.make(room.released(), solutions))
    room.said = room.nbgrader("autograde", LAB)
    room.nbgrader("generate_feedback", LAB)
    room.exported = room.export()
    return room


def test_the_class_is_thirty_or_more():
    assert len(CLASS) >= 30


@pytest.mark.parametrize("student", CLASS, ids=lambda student: student.name)
def test_everyone_gets_what_they_earned(graded, student):
    scores = graded.scores(student.name)
    assert {check: scores[check] for check in CHECKS} == pytest.approx(student.expected())
    assert scores["03-heads-gpu"] is None
    assert all(type(score) is float for check, score in scores.items() if check in CHECKS)


@pytest.mark.parametrize("student", CLASS, ids=lambda student: student.name)
def test_feedback_says_what_happened(graded, student):
    page, result = graded.feedback(student.name), graded.result(student.name)
    for text in student.says:
        assert text in page
    for text in student.never:
        assert text not in page
    if student.mistake:
        check, fault = student.mistake
        assert result["cells"][check]["mistake"] == fault


def test_export_has_percent_and_pending(graded):
    rows = graded.exported
    assert set(rows) == {student.name for student in CLASS}
    for student in CLASS:
        earned = sum(student.expected().values())
        assert float(rows[student.name]["score"]) == pytest.approx(earned)
        assert float(rows[student.name]["percent"]) == pytest.approx(100 * earned / sum(POINTS.values()))
        assert rows[student.name]["pending_cells"].split() == ["03-heads-gpu"]


def test_a_perfect_submission_without_a_gpu_has_all_points(graded):
    row = graded.exported["ada-perfect"]
    assert (row["score"], row["max_score"], row["percent"], row["pending"]) == ("100.0", "100.0", "100.0", "10.0")


def test_neighbours_are_untouched(graded):
    first, last = (graded.result(name)["cells"] for name in ("ada-perfect", "zoe-after-them"))
    same = ("verdict", "points", "mistake", "text")
    assert {c: [v[k] for k in same] for c, v in first.items()} == {c: [v[k] for k in same] for c, v in last.items()}


def test_the_gradebook_holds_no_score_by_hand(graded):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{graded.folder / 'gradebook.db'}") as gradebook:
        grades = gradebook.find_submission_notebook(LAB, LAB, "gradebook-edit").grades
        assert [grade.manual_score for grade in grades] == [None] * len(grades)


def test_no_seed_solution_oracle_or_hidden_case_in_feedback(graded):
    seed = (graded.folder / ".grading_seed").read_text()
    solutions = (graded.folder / "solutions" / LAB / f"{LAB}.ipynb").read_text()
    answer = "m_finite = tl.where"
    assert answer in solutions
    for student in CLASS:
        drawn = [d for record in graded.result(student.name)["teacher"]["seeds"].values() for d in record["draws"]]
        folder = graded.folder / "feedback" / student.name
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert [path.name for path in files] == [f"{LAB}.html"]
        page = files[0].read_text()
        assert seed not in page and not any(str(number) in page for number in drawn)
        assert not re.search(r"\bseed\b", page.partition("<body")[2])
        if student.name == "stub":
            assert answer not in page and "BEGIN SOLUTION" not in page


def test_a_second_run_reads_the_results(graded):
    path = graded.folder / "results" / LAB / "stub" / f"{LAB}.json"
    before = path.stat().st_mtime_ns
    graded.nbgrader("autograde", LAB, "--student", "stub", "--force")
    assert path.stat().st_mtime_ns == before


def test_nothing_is_left_running(graded):
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(graded.folder) not in listed
    assert "flashkit.runtime.server" not in listed


def test_the_same_input_has_one_digest(graded):
    content = (graded.folder / "submitted" / "stub" / LAB / f"{LAB}.ipynb").read_bytes()
    assert graded.result("stub")["input_sha256"] == hashlib.sha256(content).hexdigest()
