"""Settings, seeds and points: what is decided before any student's code runs."""

import math
import re
import shutil
import subprocess
import sys

import pytest

from flashkit.grading import grade as grade_module
from flashkit.grading import results, seeds, settings
from flashkit.grading.grade import cell_points
from tests.classroom.classroom import ROOT


@pytest.fixture
def config(tmp_path):
    def write(old="", new=""):
        text = (ROOT / settings.CONFIG).read_text()
        assert old in text
        (tmp_path / settings.CONFIG).write_text(text.replace(old, new))
        return tmp_path

    return write


def test_the_courses_own_config_is_one(config):
    chosen = settings.load(config())
    assert chosen.gpu == "bonus" and sum(chosen.shares.values()) == pytest.approx(1)


def test_a_choice_that_cannot_be_meant_is_one_line(config):
    with pytest.raises(ValueError, match="GPU must be one of required, bonus, off, not 'sometimes'"):
        settings.load(config('GPU = "bonus"', 'GPU = "sometimes"'))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("0.70", "70", "SHARES must be numbers for right, bytes and compiles that add up to 1"),
        ('"right": 0.70', '"correct": 0.70', "SHARES must be"),
        ("0.70", "'most'", "SHARES must be"),
        ('"memory_gib": 4, ', "", "LIMITS needs a number above 0 for memory_gib"),
        ('"processes": 64', '"processes": "64"', "LIMITS needs a number above 0 for processes"),
        ('"seconds_per_cell": 30', '"seconds_per_cell": 0', "LIMITS needs a number above 0 for seconds_per_cell"),
        ('"submitted": "submitted",', "", "FOLDERS needs a text for submitted"),
        ('"bonus"', "bonus", "cannot be used: NameError"),
        ('"bonus"', '"bonus', "cannot be used: SyntaxError"),
        ("SHARES =", "PARTS =", "cannot be used: AttributeError"),
        ("LIMITS =", "LIMITS = None  #", "LIMITS must be a dict"),
    ],
)
def test_what_cannot_be_meant_is_one_line(config, old, new, said):
    with pytest.raises(ValueError, match=said) as error:
        settings.load(config(old, new))
    assert "\n" not in str(error.value)


def test_shares_may_leave_a_part_out(config):
    chosen = settings.load(config('"bytes": 0.15, "compiles": 0.15', '"bytes": 0.3'))
    assert dict(chosen.shares) == {"right": 0.7, "bytes": 0.3}


def test_nbgrader_does_nothing_where_the_config_is_broken(config):
    """It would go on with its own steps, which run student code as the teacher."""
    folder = config('GPU = "bonus"', 'GPU = "bonus')
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    command = [sys.executable, "-m", "nbgrader", "autograde", "lab"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1 and not (folder / "gradebook.db").exists()
    assert "grader_config.py cannot be used, so nothing was done: SyntaxError" in done.stderr


def test_a_folder_without_config_is_told_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="copy the course's there"):
        settings.load(tmp_path)


@pytest.mark.parametrize(("gpu", "points"), [("required", 10.0), ("bonus", 0.0), ("off", 0.0)])
def test_gpu_cells_count_only_where_a_gpu_is_required(gpu, points):
    assert cell_points("03-heads-gpu", gpu) == points
    assert cell_points("03-heads", gpu) == 40.0
    assert (cell_points("02-cuda", gpu), cell_points("02-cuda-gpu", gpu)) == (4.0, 1.6 * points)


def test_only_what_could_not_be_tried_is_judged_again(tmp_path, monkeypatch):
    made = []

    def grade(submission, chosen, folder):
        made.append(1)
        pending = {"pending": 6.0 if len(made) == 1 else 0.0, "share": 0.8}  # no compiler on the first run
        gpu = {"pending": 10.0, "share": None}
        return {"schema": 1, "key": "same", "cells": {"a": pending, "a-gpu": gpu}, "teacher": {}}

    monkeypatch.setattr(grade_module, "grade", grade)
    monkeypatch.setattr(grade_module, "key", lambda *_: "same")
    path = tmp_path / "result.json"
    for runs in (1, 2, 2):
        result = grade_module.graded(None, None, tmp_path, path)
        assert len(made) == runs
    results.write(path, {**result, "cells": {"a": {"pending": 6.0, "share": 0.8}}, "teacher": {"gpu": {}}})
    assert grade_module.graded(None, None, tmp_path, path)["cells"]["a"]["pending"] and len(made) == 2


def test_the_seed_file_is_made_once_and_private(tmp_path, monkeypatch):
    monkeypatch.delenv(seeds.VARIABLE, raising=False)
    first = seeds.master_seed(tmp_path)
    assert first == seeds.master_seed(tmp_path) and len(first) == 32
    assert (tmp_path / seeds.FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [seeds.FILE]


def test_the_environments_seed_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv(seeds.VARIABLE, "mine")
    assert seeds.master_seed(tmp_path) == b"mine" and not (tmp_path / seeds.FILE).exists()


def test_seeds_differ_by_exercise_index_and_master():
    drawn = [seeds.case_seed(m, e, i) for m in (b"a", b"b") for e in ("03.tile", "03.rows") for i in range(3)]
    assert len(set(drawn)) == len(drawn) and all(0 <= seed < 2**31 for seed in drawn)
    assert seeds.case_seed(b"a", "03.tile", 0) == drawn[0]


@pytest.mark.parametrize(
    ("value", "most", "kept"), [(3, 2, 2.0), (-1, 2, 0.0), (math.nan, 2, 0.0), (math.inf, 2, 2.0), (1, 2.0, 1.0)]
)
def test_a_score_is_a_plain_float_in_range(value, most, kept):
    clamped = results.clamped(value, most)
    assert type(clamped) is float and clamped == kept


def test_a_result_is_private_and_whole(tmp_path):
    path = results.result_path(tmp_path, "lab", "ada", "notebook")
    results.write(path, {"schema": results.SCHEMA, "x": 1})
    assert results.read(path) == {"schema": results.SCHEMA, "x": 1}
    assert path.stat().st_mode & 0o777 == 0o600 and len(list(path.parent.iterdir())) == 1
    path.write_text("{")
    assert results.read(path) is None
    shutil.rmtree(tmp_path / results.FOLDER)
    assert results.read(path) is None


def test_nbgrader_commands_in_the_teachers_page_exist():
    page = (ROOT / "CLASSROOM.md").read_text()
    from nbgrader.apps.nbgraderapp import NbGraderApp

    used = set(re.findall(r"`nbgrader (\w+)", page))
    known = {name.replace("-", "_") for name in NbGraderApp.subcommands}
    assert used and used <= known | {"finds"}
