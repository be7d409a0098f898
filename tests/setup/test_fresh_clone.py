"""A clone with nothing installed: `make venv`, then `make lab` serves the first page without nbgrader's buttons."""

import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.alone]  # one worker, so that the clone is made once


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fresh") / "course"
    subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
    subprocess.run(["make", "venv"], cwd=folder, env=plain_environment(), check=True, timeout=1800)
    return folder


def plain_environment():
    """This process runs inside a venv, below a make; the clone must not see either."""
    hidden = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON_GIVEN", "VIRTUAL_ENV", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    kept["PATH"] = os.pathsep.join(part for part in kept["PATH"].split(os.pathsep) if not part.startswith(str(ROOT)))
    return kept


@pytest.fixture
def lab(clone, tmp_path):
    """The address that `make lab` prints."""
    printed = tmp_path / "printed"
    with open(printed, "w") as file:
        make = subprocess.Popen(
            ["make", "lab", "LAB_ARGS=--no-browser"],
            cwd=clone,
            env=plain_environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        for _ in range(2400):
            if address := re.search(r"http://\S+", printed.read_text()):
                break
            assert make.poll() is None, printed.read_text()
            time.sleep(0.1)
        yield address[0]
    finally:
        if make.poll() is None:
            os.killpg(make.pid, signal.SIGTERM)
            make.wait(30)


def test_a_second_make_venv_does_nothing(clone):
    before = (clone / ".venv" / "flashkit-stamp.json").stat().st_mtime_ns
    said = subprocess.check_output(["make", "venv"], cwd=clone, env=plain_environment(), text=True)
    assert said == ""
    assert (clone / ".venv" / "flashkit-stamp.json").stat().st_mtime_ns == before


def test_make_lab_serves_the_first_page_and_copies_the_labs(clone, lab):
    with urllib.request.urlopen(lab, timeout=30) as answer:
        page = answer.read().decode()
    assert answer.status == 200 and "JupyterLab" in page
    assert lab.split("?")[0].endswith("/lab/tree/notebooks/00_start_here.ipynb")
    assert {path.name for path in (clone / "labs").iterdir()} <= {path.name for path in (clone / "work").iterdir()}


def test_a_learner_sees_no_formgrader(lab):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(lab.replace("lab/tree/notebooks/00_start_here.ipynb", "formgrader"), timeout=30)
    with urllib.request.urlopen(lab, timeout=30) as answer:
        assert "@jupyter/nbgrader" in re.search(r'"disabledExtensions": \[.*?\]', answer.read().decode())[0]


def test_the_package_for_students_holds_no_solution_and_no_mutant(clone):
    import zipfile

    subprocess.run(["make", "student-package"], cwd=clone, env=plain_environment(), check=True)
    names = zipfile.ZipFile(clone / "dist" / "flashkit-students.zip").namelist()
    assert "flashkit-course/README.md" in names and "flashkit-course/tools/setup_venv.py" in names
    names.remove("flashkit-course/benchmarks/results/prediction-h200.json")  # which chapter 06 reads
    assert not [name for name in names if name.split("/")[1] in ("solutions", "tests", ".ci", "benchmarks")]
