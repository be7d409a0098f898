"""A class on several workers: each submission a process of its own, one writer, results kept."""

import json
import os
import subprocess
import sys

import pytest

from tests.classroom.classroom import LAB, ROOT, Classroom
from tests.classroom.students import CLASS

pytestmark = [pytest.mark.classroom, pytest.mark.xdist_group("classroom"), pytest.mark.timeout(900)]
NAMES = ("stub", "os-exit")


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    room = Classroom(tmp_path_factory.mktemp("course") / "class", {'GPU = "bonus"': 'GPU = "required"'})
    solutions = json.loads((room.folder / "solutions" / LAB / f"{LAB}.ipynb").read_text())
    for student in CLASS:
        if student.name in NAMES:
            room.hand_in(student.name, student.make(room.released(), solutions))
    return room


def grade(room):
    command = [sys.executable, "-m", "flashkit.grading.grade_class", LAB, "--workers", "2"]
    done = subprocess.run(command, cwd=room.folder, env=room.environment(), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def graded(room):
    status, said = grade(room)
    assert status == 0, said
    return room


def test_a_class_is_graded_and_the_gradebook_filled(graded):
    for student in CLASS:
        if student.name in NAMES:
            scores = graded.scores(student.name)
            assert scores.pop("03-heads-gpu") is None
            assert scores == pytest.approx(student.expected())


@pytest.mark.slow
def test_a_second_run_keeps_every_result(graded):
    def written():
        return {n: (graded.folder / "results" / LAB / n / f"{LAB}.json").stat().st_mtime_ns for n in NAMES}

    before, times = {name: graded.result(name) for name in NAMES}, written()
    assert grade(graded)[0] == 0
    assert {name: graded.result(name) for name in NAMES} == before and written() == times


def test_where_a_gpu_is_required_its_points_are_missing_and_pending(graded):
    row = graded.export()["os-exit"]
    assert (row["score"], row["max_score"], row["pending"]) == ("35.0", "110.0", "10.0")


def test_a_folder_that_is_no_class_is_one_line(tmp_path):
    command = [sys.executable, "-m", "flashkit.grading.grade_class", LAB]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 1 and "There is no grader_config.py" in done.stderr.strip().splitlines()[-1]
