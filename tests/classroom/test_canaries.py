"""Nothing that would be an answer is in what students get: package, released labs (feedback: test_class.py)."""

import json
import re
import subprocess
import sys
import zipfile

import pytest

from flashkit.exercises import EXERCISES
from tests.classroom.classroom import ROOT
from tools import student_package

BLANK = re.compile(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", re.DOTALL)


def answers(lab: str) -> set[str]:
    """Lines that stand in a lab's blanks and nowhere else in its source, long enough to be no accident."""
    cells = json.loads((ROOT / "solutions" / lab / f"{lab}.ipynb").read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    blanks = {line.strip() for text in texts for blank in BLANK.findall(text) for line in blank.splitlines()}
    given = "\n".join(BLANK.sub("", text) for text in texts)
    return {line for line in blanks if len(line) > 40 and not line.startswith("#") and line not in given}


LABS = sorted(path.parent.name for path in (ROOT / "solutions").glob("*/*.ipynb"))


@pytest.fixture(scope="module")
def package():
    subprocess.run([sys.executable, "-m", "tools.student_package"], cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(ROOT / "dist" / "flashkit-students.zip") as file:
        return {name: file.read(name).decode(errors="replace") for name in file.namelist()}


def test_the_solutions_have_lines_worth_hiding():
    assert len(answers("03_flash_forward")) >= 10


@pytest.mark.parametrize("lab", LABS)
def test_a_released_lab_holds_no_answer(lab):
    cells = json.loads((ROOT / "labs" / lab / f"{lab}.ipynb").read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    assert not [line for line in answers(lab) if line in text]
    assert "BEGIN SOLUTION" not in text and "HIDDEN TESTS" not in text


def test_the_student_package_holds_no_solution_grader_or_test(package):
    names = [name.partition("/")[2] for name in package]
    assert not [name for name in names if name.startswith(("solutions/", "tests/", "flashkit/grading/", "results/"))]
    assert not [
        name for name in names if name.rpartition("/")[2] in ("grader_config.py", ".grading_seed", "gradebook.db")
    ]


@pytest.mark.parametrize("lab", LABS[1:])  # lab 00 repeats the kernel of its chapter
def test_no_file_of_the_student_package_is_a_solution(package, lab):
    """A line or two of a lab may stand in a chapter; a kernel may not, but in a lab that is handed out later."""
    hidden = answers(lab)
    for name, text in package.items():
        if student_package.is_later(name.partition("/")[2], lab):
            continue
        shown = [line for line in hidden if line in text.replace('\\"', '"')]
        assert len(shown) <= max(1, len(hidden) // 4), (name, shown)


def test_a_package_up_to_a_lab_has_no_later_one():
    names = ["labs/02_x/x.ipynb", "labs/03_x/x.ipynb", "labs/04_x/x.ipynb", "notebooks/04_x.ipynb", "README.md"]
    assert [name for name in names if student_package.is_later(name, "03")] == ["labs/04_x/x.ipynb"]


def test_a_labs_number_may_lack_its_zero_and_nothing_else(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(student_package, "ROOT", tmp_path)
    monkeypatch.setattr(student_package, "PACKAGE", tmp_path / "dist" / "package.zip")
    names = ["labs/02_x/x.ipynb", "labs/07_x/x.ipynb"]
    monkeypatch.setattr(student_package, "committed", lambda root: names)
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert student_package.main("6") == 0
    with zipfile.ZipFile(tmp_path / "dist" / "package.zip") as package:
        assert package.namelist() == ["flashkit-course/labs/02_x/x.ipynb"]
    assert [student_package.main(last) for last in ("six", "06_fa2", "")] == [1, 1, 1]
    assert "LAST must be a lab's number" in capsys.readouterr().err


def test_no_secret_case_can_be_told_from_what_is_handed_out(package):
    """Cases are drawn from the master seed; no file of the package reads or holds one."""
    for name, text in package.items():
        assert "FLASHKIT_GRADING_SEED" not in text and "grading_seed" not in text.replace("/.grading_seed", ""), name
    exercise = EXERCISES["03.heads"]
    assert {case.seed for case in exercise.draw(1)}.isdisjoint(case.seed for case in exercise.draw(2))
