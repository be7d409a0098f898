"""Only a plain file is a submission: a link would hand in what it leads to, and a pipe would stop the class."""

import json
import os

import pytest
from nbgrader.converters import base
from nbgrader.coursedir import CourseDirectory

from flashkit.grading import grade_class, grade_one, handed_in, nbgrader_steps
from flashkit.grading.handed_in import rebuilt
from tests.classroom.classroom import ROOT

SKELETON = {
    "cells": [
        {
            "cell_type": "code",
            "id": "kernel",
            "metadata": {"nbgrader": {"grade_id": "kernel-a", "solution": True, "grade": False, "locked": False}},
            "source": "raise NotImplementedError()",
        }
    ],
    "metadata": {},
}
SOLVED = json.dumps(SKELETON).replace("raise NotImplementedError()", "solved")
LAB = "lab.ipynb"


@pytest.fixture
def folder(tmp_path):
    """A class with a release and one honest submission, and the folder of another student."""
    for place, text in (("labs", json.dumps(SKELETON)), ("submitted/ada", SOLVED), ("submitted/eve", None)):
        (tmp_path / place / "lab").mkdir(parents=True)
        if text:
            (tmp_path / place / "lab" / LAB).write_text(text)
    (tmp_path / "grader_config.py").write_text((ROOT / "grader_config.py").read_text())
    return tmp_path


def large(path):
    path.touch()
    os.truncate(path, handed_in.LARGEST + 1)  # sparse


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda path: path.symlink_to("../../ada/lab/lab.ipynb"), "a link"),
        (lambda path: path.mkdir(), "a folder"),
        (os.mkfifo, "no plain file"),
        (large, "larger than 64 MiB"),
    ],
    ids=["link", "folder", "pipe", "large"],
)
def test_what_is_no_plain_file_is_not_read_and_a_note_says_so(folder, make, what):
    path = folder / "submitted" / "eve" / "lab" / LAB
    make(path)
    submission = rebuilt(path, SKELETON)
    assert [cell.source for cell in submission.code] != ["solved"]
    assert what in submission.notes[0]


def test_a_plain_file_is_read(folder):
    submission = rebuilt(folder / "submitted" / "ada" / "lab" / LAB, SKELETON)
    assert [cell.source for cell in submission.code] == ["solved"] and not submission.notes


def test_a_neighbours_folder_by_a_link_is_not_read(folder):
    (folder / "submitted" / "eve" / "lab").rmdir()
    (folder / "submitted" / "eve" / "lab").symlink_to("../ada/lab")
    assert "a link" in rebuilt(folder / "submitted" / "eve" / "lab" / LAB, SKELETON).notes[0]


def test_a_result_is_that_of_the_student_whose_folder_it_is(folder, monkeypatch):
    path = folder / "submitted" / "eve" / "lab" / LAB
    path.symlink_to("../../ada/lab/lab.ipynb")
    monkeypatch.setattr(grade_one, "graded", lambda submission, *rest: {"notes": submission.notes})
    written, result = grade_one.grade_file(path)
    assert written.parent.name == "eve" and "a link" in result["notes"][0]


def test_nbgrader_copies_plain_files_alone(folder):
    lab = folder / "submitted" / "eve" / "lab"
    (lab / "data").mkdir()
    (lab / "data" / "mine.txt").touch()
    (lab / "book.db").symlink_to("../../../gradebook.db")
    (lab / "solutions").symlink_to("../../ada")
    os.mkfifo(lab / "pipe")
    assert base.find_all_files is nbgrader_steps._plain_files
    assert base.find_all_files(str(lab)) == [str(lab / "data" / "mine.txt")]
    (folder / "whole").symlink_to(lab)
    assert base.find_all_files(str(folder / "whole")) == []


def test_the_time_of_handing_in_is_read_from_a_plain_file_alone(folder):
    """nbgrader would wait for a pipe for ever, and read a link to a device until memory ends."""
    lab, when = folder / "submitted" / "eve" / "lab", "2026-02-02 12:00:00 UTC"
    known = CourseDirectory().get_existing_timestamp
    assert known(str(lab)) is None
    (lab / "timestamp.txt").write_text(when)
    assert known(str(lab)).day == 2
    (lab / "timestamp.txt").write_text(when + " " * 200)
    assert known(str(lab)) is None
    (lab / "timestamp.txt").unlink()
    (folder / "elsewhere.txt").write_text(when)
    (lab / "timestamp.txt").symlink_to(folder / "elsewhere.txt")
    assert known(str(lab)) is None


def test_another_name_is_left_out_and_named(folder, capsys):
    lab = folder / "submitted" / "ada" / "lab"
    (lab / "lab (1).ipynb").touch()
    folders = {"release": "labs", "submitted": "submitted"}
    assert grade_class.handed_in(folder, folders, "lab") == [lab / LAB]
    assert "left out, rename it" in (said := capsys.readouterr().err) and "lab (1).ipynb" in said
    with pytest.raises(ValueError, match="rename it to lab.ipynb"):
        grade_one.grade_file(lab / "lab (1).ipynb")
