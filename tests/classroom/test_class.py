"""A class through nbgrader's own commands: everyone gets what they earned, whatever the others did."""

import hashlib
import json
import re
import time

import pytest

from tests.classroom.classroom import CHECKS, LAB, Classroom
from tests.classroom.students import CLASS, POINTS

pytestmark = [pytest.mark.classroom, pytest.mark.xdist_group("classroom"), pytest.mark.timeout(2400)]
A_FEW = (
    *("ada-perfect", "stub", "fault-strict", "deleted", "empty-file", "os-exit"),
    *("gradebook-edit", "forged-bytes", "fork-bomb", "zoe-after-them"),
)


class Graded(Classroom):
    """The class after `nbgrader autograde`, `generate_feedback` and `export`."""

    def __init__(self, folder, students):
        super().__init__(folder)
        self.students = students
        solutions = json.loads((self.folder / "solutions" / LAB / f"{LAB}.ipynb").read_text())
        for student in students:
            self.hand_in(student.name, student.make(self.released(), solutions))
        self.nbgrader("autograde", LAB)
        self.nbgrader("generate_feedback", LAB)
        self.exported = self.export()


@pytest.fixture(scope="module", params=["a few", pytest.param("all", marks=pytest.mark.slow)])
def graded(request, tmp_path_factory):
    students = [student for student in CLASS if request.param == "all" or student.name in A_FEW]
    return Graded(tmp_path_factory.mktemp("course") / "class", students)


def test_the_class_is_thirty_or_more():
    assert len(CLASS) >= 30 and set(A_FEW) <= {student.name for student in CLASS}


def test_everyone_gets_what_they_earned(graded):
    scores = {student.name: graded.scores(student.name) for student in graded.students}
    earned = {name: [of[check] for check in CHECKS] for name, of in scores.items()}
    assert earned == {student.name: pytest.approx(list(student.expected().values())) for student in graded.students}
    assert {of["03-heads-gpu"] for of in scores.values()} == {None}
    assert {type(score) for row in earned.values() for score in row} == {float}


def test_feedback_says_what_happened(graded):
    wrong = []
    for student in graded.students:
        page, result = graded.feedback(student.name), graded.result(student.name)
        wrong += [(student.name, text) for text in student.says if text not in page]
        wrong += [(student.name, text) for text in student.never if text in page]
        if student.mistake and result["cells"][student.mistake[0]]["mistake"] != student.mistake[1]:
            wrong.append((student.name, result["cells"][student.mistake[0]]["text"]))
    assert not wrong


def test_export_has_percent_and_pending(graded):
    rows = graded.exported
    assert set(rows) == {student.name for student in graded.students}
    for student in graded.students:
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
    solved = [check for check, cell in last.items() if cell["points"]]
    assert solved == ["03-tile", "03-causal"]
    assert [[first[c][k] for k in same] for c in solved] == [[last[c][k] for k in same] for c in solved]


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
    for student in graded.students:
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
    until = time.monotonic() + 30  # what has been ended may take a moment to go
    while (left := graded.left_running()) and time.monotonic() < until:
        time.sleep(0.2)
    assert left == []


def test_the_same_input_has_one_digest(graded):
    content = (graded.folder / "submitted" / "stub" / LAB / f"{LAB}.ipynb").read_bytes()
    assert graded.result("stub")["input_sha256"] == hashlib.sha256(content).hexdigest()
