"""--gpu-only where the GPU is a stand-in: what waits is judged, all else is kept, and no doubt costs points."""

import copy
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from flashkit import exercises
from flashkit.check import cuda
from flashkit.check.cost import Target
from flashkit.grading import gpu_cells, gpu_sandbox, grade_class, grade_one, nbgrader_steps, results, settings, slurm
from flashkit.grading.sandbox import Limits
from flashkit.grading.sanitise import rebuild
from flashkit.instruments.cuda_run import CudaRun
from tests.classroom.classroom import ROOT

H200 = Target(90, "NVIDIA H200")


def submission(lab: str, folder: str = "labs"):
    path = ROOT / folder / lab / f"{lab}.ipynb"
    return rebuild(path.read_bytes(), json.loads((ROOT / "labs" / lab / f"{lab}.ipynb").read_text()))


def cell(verdict: str, points, pending: float = 0.0) -> dict:
    share = None if points is None else float(points > 0)
    return {"verdict": verdict, "share": share, "points": points, "out_of": 10.0, "pending": pending, "text": "before"}


@pytest.fixture
def room(tmp_path):
    """A class's folder with one graded submission of lab 03: 03.heads right, its GPU cell pending."""
    handed_in, path = submission("03_flash_forward"), tmp_path / "result.json"
    cells = {
        "03-rows": cell("wrong", 0.0),
        "03-heads": cell("right", 40.0),
        "03-heads-gpu": cell("not judged", None, 10.0),
    }
    result = {"schema": results.SCHEMA, "key": "k", "input_sha256": handed_in.sha256, "cells": cells, "teacher": {}}
    results.write(path, result)
    return SimpleNamespace(submission=handed_in, path=path, folder=tmp_path, result=result)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU whose child answers ``gpu.answer``; ``gpu.asked`` holds the requests that it had."""
    stand_in = SimpleNamespace(answer={"points": 8.0, "told": "right; 1.2 times the course's own"}, asked=[], reason="")

    def run(inside, folder, root, limits, seconds):
        stand_in.asked.append(json.loads((folder / "request.json").read_text()))
        if stand_in.answer is not None:
            (folder / "answer.json").write_text(json.dumps(stand_in.answer))
        return stand_in.reason

    monkeypatch.setattr(gpu_cells, "here", lambda: H200)
    monkeypatch.setattr(gpu_sandbox, "run", run)
    return stand_in


def fill(room) -> dict:
    return gpu_cells.fill(room.submission, settings.load(ROOT), room.folder, room.path)


def test_what_waits_is_judged_and_the_rest_is_kept(room, gpu):
    judged = copy.deepcopy(fill(room))
    assert judged == results.read(room.path)
    filled = judged["cells"].pop("03-heads-gpu")
    assert (filled["verdict"], filled["share"], filled["points"], filled["pending"]) == ("right", 0.8, 8.0, 0.0)
    assert "8 of 10 points: right; 1.2 times the course's own" in filled["text"] and "8 of 10" in filled["html"]
    assert judged["teacher"].pop("gpu")["name"] == "NVIDIA H200"
    del room.result["cells"]["03-heads-gpu"]
    assert judged == room.result
    (request,) = gpu.asked
    assert (request["id"], request["function"], request["gpu"]) == ("03.heads", "flash_forward", "NVIDIA H200")
    assert "kernel-03-heads" in request["cells"][-1][0]


def test_a_second_run_finds_nothing_that_waits(room, gpu):
    fill(room)
    assert fill(room) == results.read(room.path) and len(gpu.asked) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"why": "UNSTABLE after 3 tries: rounds differ"}, "UNSTABLE after 3 tries"),
        (None, "gave no answer"),
        ([1], "gave no answer"),
        ({"points": "many", "told": "right"}, "gave no answer"),
        ({"points": 10**400, "told": "right"}, "gave no answer"),
    ],
)
def test_what_the_machine_could_not_judge_stays_pending(room, gpu, answer, said):
    gpu.answer = answer
    waiting = fill(room)["cells"]["03-heads-gpu"]
    assert (waiting["points"], waiting["share"], waiting["pending"]) == (None, None, 10.0) and said in waiting["text"]


@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(ROOT / "pyproject.toml")])
def test_an_answer_that_is_no_plain_file_is_none(tmp_path, made):
    made(tmp_path / "answer.json")
    with pytest.raises(OSError):
        gpu_cells._plain_text(tmp_path / "answer.json")
    assert gpu_cells._read(exercises.get("03.heads"), tmp_path / "answer.json").pending


def test_more_points_than_there_are_cannot_be_claimed(room, gpu):
    gpu.answer = {"points": 1000, "told": "right " * 1000}
    filled = fill(room)["cells"]["03-heads-gpu"]
    assert (filled["points"], filled["share"]) == (10.0, 1.0) and len(filled["text"]) < 2000


def test_a_kernel_that_hangs_is_told_so(room, gpu):
    gpu.answer, gpu.reason = None, "It gave no answer within 300 s."
    filled = fill(room)["cells"]["03-heads-gpu"]
    assert (filled["verdict"], filled["points"], filled["pending"]) == ("wrong", 0.0, 0.0)
    assert "ended: It gave no answer within 300 s" in filled["text"]


@pytest.mark.parametrize("verdict", ["wrong", "crashed", "will not compile", "not judged"])
def test_only_what_was_found_right_from_outside_is_run(room, gpu, verdict):
    room.result["cells"]["03-heads"]["verdict"] = verdict
    results.write(room.path, room.result)
    filled = fill(room)["cells"]["03-heads-gpu"]
    assert (filled["points"], gpu.asked) == (0.0, []) and f"03.heads is {verdict}" in filled["text"]


def test_another_submissions_result_is_refused(room, gpu):
    room.submission.sha256 = "another"
    with pytest.raises(ValueError, match="no result of this submission: grade it first"):
        fill(room)


def test_without_a_gpu_it_is_one_line(room, monkeypatch):
    monkeypatch.setattr(gpu_cells, "here", Target)
    with pytest.raises(ValueError, match="--gpu-only needs a GPU"):
        fill(room)


def test_a_file_without_a_class_is_one_line(tmp_path, capsys):
    path = tmp_path / "submitted" / "ada" / "lab" / "lab.ipynb"
    assert grade_one.main([str(path), "--gpu-only"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


# ---- CUDA C++ -------------------------------------------------------------------------------------------


@pytest.mark.classroom
@pytest.mark.parametrize("right", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_cuda_text_is_proved_on_secret_cases_too(tmp_path, gpu, monkeypatch, right):
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    exercise, launched = exercises.get("02.cuda"), []

    def run(text, kernel, launches, timed, child):
        assert kernel in text and child(tmp_path)[-1] == str(tmp_path)
        launched.extend(launches)
        outputs = [torch.softmax(torch.from_numpy(launch["values"]), 1).numpy() for launch in launches]
        outputs[-1] = outputs[-1] if right else outputs[-1] * 2
        return CudaRun(tuple(outputs), (False,) * len(launches), 2e-4, 1e-4)

    monkeypatch.setattr(cuda.cuda_run, "run", run)
    handed_in = submission("02_online_softmax", "solutions")
    report = gpu_cells._cuda(exercise, handed_in, settings.load(ROOT), tmp_path, H200)
    assert len(launched) > len(exercise.cases)
    assert (
        (report.points > 0.7 * exercise.gpu_points) if right else (report.points == 0 and "cases right" in report.told)
    )


# ---- the sandbox ----------------------------------------------------------------------------------------

LOOK = """
import json, os, socket
seen = {name: os.path.exists(name) and os.path.getsize(name) for name in %r}
names = [name for _, name in socket.if_nameindex()]
json.dump([seen, names, os.access(%r, os.W_OK), sorted(os.environ)], open("seen.json", "w"))
"""


@pytest.mark.classroom
def test_the_gpus_sandbox_holds_the_course_and_nothing_of_the_class(tmp_path):
    root, folder = tmp_path / "class", tmp_path / "own"
    secrets = [root / ".grading_seed", root / "results" / "x.json", root / "submitted" / "ada" / "lab.ipynb"]
    for path in secrets:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    folder.mkdir()
    solutions = ROOT / "solutions" / "03_flash_forward" / "03_flash_forward.ipynb"
    code = LOOK % ([str(path) for path in (*secrets, solutions)], str(ROOT))
    assert gpu_sandbox.run([sys.executable, "-c", code], folder, root, Limits(), 60) == ""
    seen, networks, writable, environment = json.loads((folder / "seen.json").read_text())
    assert seen.pop(str(solutions)) and not any(seen.values())
    assert networks == ["lo"] and not writable and not [name for name in environment if "GRAD" in name]


@pytest.mark.classroom
def test_a_child_that_hangs_is_ended(tmp_path):
    reason = gpu_sandbox.run([sys.executable, "-c", "while True: pass"], tmp_path, tmp_path, Limits(), 1)
    assert reason == "It gave no answer within 1 s."


@pytest.mark.classroom
@pytest.mark.parametrize(("size", "many"), [(2**20, 40), (1, 6000)])
def test_a_child_that_fills_the_disk_is_ended(tmp_path, size, many):
    code = f"for n in range({many}): open(str(n), 'wb').write(bytes({size}))\nwhile True: pass"
    reason = gpu_sandbox.run([sys.executable, "-c", code], tmp_path, tmp_path, Limits(disk=2**24), 60)
    assert reason == "It wrote too many files, or too large ones."


@pytest.mark.classroom
def test_what_is_hidden_has_little_room(tmp_path):
    code = """
import json, os
room = {path: os.statvfs(path) for path in ("/tmp",)}
json.dump({path: s.f_blocks * s.f_frsize for path, s in room.items()}, open("room.json", "w"))"""
    folder = tmp_path / "own"
    folder.mkdir()
    assert gpu_sandbox.run([sys.executable, "-c", code], folder, tmp_path, Limits(disk=2**24), 60) == ""
    assert json.loads((folder / "room.json").read_text())["/tmp"] == 2**24


@pytest.mark.classroom
def test_the_real_child_says_that_it_sees_no_gpu(tmp_path):
    (tmp_path / "request.json").write_text("{}")
    inside = [sys.executable, "-m", "flashkit.grading.gpu_child", str(tmp_path)]
    assert gpu_sandbox.run(inside, tmp_path, tmp_path / "class", Limits(), 120) == ""
    assert json.loads((tmp_path / "answer.json").read_text()) == {"why": "the sandbox sees no GPU"}


# ---- what becomes of it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "judged", "by_hand", "expected"),
    [
        (10.0, cell("right", 8.0), 1.0, (10.0, 1.0)),  # required: the cell's own points
        (0.0, cell("right", 8.0), None, (0.0, 8.0)),  # a bonus
        (0.0, cell("not judged", None, 10.0), None, (None, None)),
        (0.0, {**cell("not judged", 0.0), "share": 0.0}, None, (0.0, 0.0)),  # a class that does without
    ],
)
def test_a_bonus_is_extra_credit_in_the_gradebook(most, judged, by_hand, expected):
    names = {"manual_score": None, "auto_score": None, "extra_credit": by_hand}
    grade = SimpleNamespace(name="03-heads-gpu", max_score=most, **names)
    handed_in = SimpleNamespace(grades=[grade], comments=[])
    commit = SimpleNamespace(commit=lambda: None)
    gradebook = SimpleNamespace(find_submission_notebook=lambda *names: handed_in, db=commit)
    nbgrader_steps.save(gradebook, {"cells": {"03-heads-gpu": judged}}, "n", "a", "s")
    assert (grade.auto_score, grade.extra_credit) == expected


@pytest.mark.parametrize("options", [[], ["--gpu-only"]])
def test_a_slurm_task_grades_the_submission_of_its_number(tmp_path, monkeypatch, options):
    python = tmp_path / "the python"
    python.write_text('#!/bin/sh\necho "$PWD" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    root = tmp_path / "a class"
    notebooks = [root / "submitted" / name / "lab" / "lab.ipynb" for name in ("ada", "zoe")]
    script = slurm.write(root, "lab", notebooks, options)
    text = script.read_text()
    assert "#SBATCH --array=1-2\n" in text and ("--gpus=1" in text) == bool(options)
    done = subprocess.run(["bash", script], env={"SLURM_ARRAY_TASK_ID": "2"}, capture_output=True, text=True)
    said = " ".join([str(root), "-m flashkit.grading.grade_one", str(notebooks[1]), *options])
    assert done.stdout.strip() == said, done.stderr


def test_a_name_with_a_line_break_shifts_no_other_submission(tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "grader_config.py", tmp_path)
    for student, name in (("ada", "a\nb.ipynb"), ("ada", os.fsdecode(b"\xff.ipynb")), ("zoe", "lab.ipynb")):
        (tmp_path / "submitted" / student / "lab").mkdir(parents=True, exist_ok=True)
        (tmp_path / "submitted" / student / "lab" / name).touch()
    monkeypatch.chdir(tmp_path)
    assert grade_class.main(["lab", "--slurm"]) == 0
    folder = tmp_path / "results" / "lab"
    assert (folder / "submissions.txt").read_text() == f"{tmp_path}/submitted/zoe/lab/lab.ipynb\n"
    assert "--array=1-1\n" in (folder / "slurm.sh").read_text()
    said = capsys.readouterr().err
    assert said.count("left out, rename it") == 2 and said.count("\n") == 2
