"""`make venv`: no work when .venv is right, one clear line for each trouble, nobody's .venv removed."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import setup_venv

ROOT = Path(__file__).resolve().parents[2]
# sys.version_info of an old Python, in a new one
OLD_PYTHON = """#!/bin/sh
exec {python} -c 'import runpy, sys
sys.version_info = (3, 9, 18, "final", 0)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""


@pytest.fixture
def course(tmp_path):
    """A folder with just what `make venv` reads."""
    folder = tmp_path / "course"
    (folder / "tools").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "tools/setup_venv.py"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def make_venv(course, python=sys.executable, command=("make", "venv"), **environment):
    """Runs `make venv`, as one line of what it says (without make's own closing line) and the exit status."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "MAKE", "MFLAGS"))}
    done = subprocess.run(
        [*command, f"PYTHON={python}"],
        cwd=course,
        env={**clean, "PIP_CONFIG_FILE": os.devnull, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    return done.returncode, said, done.stdout


def ask(course, expression, **environment):
    """What `expression` is in the course's own copy of setup_venv."""
    code = f"import json, sys; sys.path.insert(0, 'tools'); import setup_venv as s; print(json.dumps(s.{expression}))"
    answer = subprocess.check_output([sys.executable, "-c", code], cwd=course, env={**os.environ, **environment})
    return json.loads(answer)


def pretend_whole(course, **changes):
    """A .venv that looks made by setup_venv in this folder."""
    (course / ".venv" / "bin").mkdir(parents=True)
    (course / ".venv" / "bin" / "python").symlink_to(sys.executable)
    stamp = {**ask(course, "wanted_stamp()"), **changes}
    (course / ".venv" / "flashkit-stamp.json").write_text(json.dumps(stamp))


def test_a_second_run_says_nothing_and_touches_nothing(course):
    pretend_whole(course)
    before = {path: path.stat().st_mtime_ns for path in course.rglob("*") if "__pycache__" not in str(path)}
    assert make_venv(course) == (0, [], "")
    assert {path: path.stat().st_mtime_ns for path in course.rglob("*") if "__pycache__" not in str(path)} == before


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_changed_requirements_make_it_stale(course, name):
    pretend_whole(course)
    assert ask(course, "is_ready()")
    with open(course / name, "a") as file:
        file.write("\n# changed\n")
    assert not ask(course, "is_ready()")


def test_a_moved_folder_makes_it_stale(course):
    pretend_whole(course)
    moved = course.rename(course.with_name("moved"))
    assert not ask(moved, "is_ready()")


def test_an_install_that_was_cut_off_is_not_taken_for_whole(course):
    pretend_whole(course)
    (course / ".venv" / "flashkit-unfinished").touch()
    assert not ask(course, "is_ready()")


@pytest.mark.parametrize(("given", "ready"), [("", True), ("command line", False)])
def test_another_python_counts_only_when_it_is_asked_for(course, given, ready):
    pretend_whole(course, python="3.10")
    assert ask(course, "is_ready()", PYTHON_GIVEN=given) == ready


def test_an_old_python_is_told_what_to_type(course, tmp_path):
    old = tmp_path / "python-old"
    old.write_text(OLD_PYTHON.format(python=sys.executable))
    old.chmod(0o755)
    status, said, _ = make_venv(course, python=old)
    assert status and len(said) == 1
    assert "the course needs 3.11 to 3.13" in said[0] and "PYTHON=" in said[0]
    assert not (course / ".venv").exists()


def test_no_such_python(course):
    status, said, _ = make_venv(course, python="python-that-is-not-there")
    assert status and len(said) == 1 and "no python-that-is-not-there here" in said[0]


def test_a_python_without_venv_names_the_package(course, tmp_path):
    (tmp_path / "ensurepip.py").write_text("raise ImportError('left out')")
    status, said, _ = make_venv(course, PYTHONPATH=str(tmp_path))
    assert status and len(said) == 1
    assert "no ensurepip module" in said[0] and "apt-get install python3." in said[0]


@pytest.fixture
def offline():
    return {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
        "TORCH_INDEX": "http://127.0.0.1:9/simple",
    }


@pytest.mark.slow
def test_no_network_is_said_in_one_line_and_the_next_run_starts_clean(course, offline):
    for _ in range(2):  # the second time there is a half-made .venv
        status, said, _ = make_venv(course, **offline)
        assert status and len(said) == 1 and said[0].startswith("setup: no network"), said
        assert (course / ".venv" / "flashkit-unfinished").exists()
        assert not (course / ".venv" / "flashkit-stamp.json").exists()


@pytest.mark.classroom
def test_a_read_only_folder_is_said_in_one_line(course):
    sandbox = [
        "bwrap",
        "--die-with-parent",
        "--dev-bind",
        "/",
        "/",
        "--ro-bind",
        str(course),
        str(course),
        "make",
        "venv",
    ]
    status, said, _ = make_venv(course, command=sandbox)
    assert status and len(said) == 1
    assert f"{course} cannot be written" in said[0]


@pytest.mark.classroom
def test_too_small_a_disk_is_said_before_anything_is_downloaded(course):
    small = ["bwrap", "--die-with-parent", "--dev-bind", "/", "/", "--size", "50000000", "--tmpfs", "/mnt"]
    there = ["sh", "-c", 'cp -r "$1"/. /mnt && cd /mnt && make venv "$2"', "sh", str(course)]
    status, said, _ = make_venv(course, command=[*small, *there])
    assert status and len(said) == 1 and "the disk is full. Free 10 GB in /mnt" in said[0]


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("OSError: [Errno 30] Read-only file system: '/x/.venv/lib'", "cannot be written"),
        ("Retrying ... NewConnectionError('<pip...>: Failed to establish a new connection')", "no network"),
        ("ERROR: No matching distribution found for torch==2.13.0", "has no torch==2.13.0"),
        ("something new", None),
    ],
)
def test_what_pip_prints_becomes_a_sentence(printed, told):
    sentence = setup_venv.explain_pip(printed)
    assert sentence is None if told is None else told in sentence


def test_an_unknown_trouble_is_pips_own_line_and_a_log(monkeypatch, tmp_path):
    monkeypatch.setattr(setup_venv, "LOG", str(tmp_path / "log"))
    said = setup_venv.unknown_trouble("Collecting x\nERROR: something {new}\nnote\n").format(disk=3, root="/")
    assert said == f"pip failed: ERROR: something {{new}} (all it said: {tmp_path / 'log'})"
    assert "Collecting x" in (tmp_path / "log").read_text()


def test_a_venv_that_was_not_made_here_is_never_removed(course):
    (course / ".venv").mkdir()
    (course / ".venv" / "mine.txt").write_text("keep")
    status, said, _ = make_venv(course)
    assert status and len(said) == 1 and "move it away" in said[0]
    assert (course / ".venv" / "mine.txt").read_text() == "keep"


@pytest.mark.parametrize(
    ("given", "driver", "reached", "expected"),
    [
        ("http://mirror/whl/cpu", True, True, ("http://mirror/whl/cpu", "cpu")),
        ("http://mirror/whl/cu130", False, True, ("http://mirror/whl/cu130", "cuda")),
        ("", False, True, (setup_venv.CPU_INDEX, "cpu")),
        ("", False, False, (None, "cuda")),
        ("", True, True, (None, "cuda")),
    ],
)
def test_where_torch_comes_from(monkeypatch, given, driver, reached, expected):
    monkeypatch.setenv("TORCH_INDEX", given)
    monkeypatch.setattr(setup_venv.platform, "system", lambda: "Linux")
    monkeypatch.setattr(setup_venv, "has_nvidia_driver", lambda: driver)
    monkeypatch.setattr(setup_venv, "answers", lambda url, seconds: reached)
    assert setup_venv.choose_torch_index() == expected


def test_an_index_that_does_not_answer_is_given_up_in_time(monkeypatch):
    def silent(url, timeout):
        time.sleep(60)
        raise TimeoutError

    monkeypatch.setattr(setup_venv.urllib.request, "urlopen", silent)
    start = time.monotonic()
    assert not setup_venv.answers("http://127.0.0.1:9/", seconds=0.2)
    assert time.monotonic() - start < 30
