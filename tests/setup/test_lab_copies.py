"""`make lab` copies each lab to work/ once, and never writes over what a learner has."""

import json

import pytest

from tools.lab_copies import RECORD, copy_labs


@pytest.fixture
def course(tmp_path):
    lab = tmp_path / "labs" / "03_flash_forward"
    (lab / "data").mkdir(parents=True)
    (lab / "lab.ipynb").write_text("released")
    (lab / "data" / "tile.txt").write_text("tile")
    return tmp_path


def run(course):
    return copy_labs(course / "labs", course / "work")


def test_the_first_run_copies_and_the_second_does_nothing(course):
    assert run(course) == ["work/03_flash_forward: your copy of data/tile.txt, lab.ipynb"]
    work = course / "work"
    assert (work / "03_flash_forward" / "lab.ipynb").read_text() == "released"
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.name != RECORD}
    assert run(course) == []
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.name != RECORD} == before


def test_what_the_learner_wrote_stays(course):
    run(course)
    mine = course / "work" / "03_flash_forward" / "lab.ipynb"
    mine.write_text("my kernel")
    assert run(course) == []
    (course / "labs" / "03_flash_forward" / "lab.ipynb").write_text("released again")
    (said,) = run(course)
    assert mine.read_text() == "my kernel"
    assert "labs/03_flash_forward has changed" in said and "rename work/03_flash_forward" in said
    assert run(course) == [said], "it is said until the learner acts"


def test_renaming_the_copy_brings_the_new_release(course):
    run(course)
    (course / "labs" / "03_flash_forward" / "lab.ipynb").write_text("released again")
    (course / "work" / "03_flash_forward").rename(course / "work" / "03_old")
    run(course)
    assert (course / "work" / "03_flash_forward" / "lab.ipynb").read_text() == "released again"
    assert (course / "work" / "03_old" / "lab.ipynb").read_text() == "released"
    assert run(course) == []


def test_a_file_new_in_the_release_is_copied_beside_the_learners(course):
    run(course)
    (course / "work" / "03_flash_forward" / "lab.ipynb").write_text("my kernel")
    (course / "labs" / "03_flash_forward" / "second.ipynb").write_text("more")
    assert run(course) == ["work/03_flash_forward: your copy of second.ipynb"]


@pytest.mark.parametrize("content", [None, "{not json", "[]"])
def test_a_lost_record_costs_no_work(course, content):
    run(course)
    mine = course / "work" / "03_flash_forward" / "lab.ipynb"
    mine.write_text("my kernel")
    record = course / "work" / RECORD
    record.unlink() if content is None else record.write_text(content)
    assert run(course) == []
    assert mine.read_text() == "my kernel"
    assert json.loads(record.read_text()).keys() == {"03_flash_forward/lab.ipynb", "03_flash_forward/data/tile.txt"}


def test_checkpoints_are_not_copied(course):
    (course / "labs" / "03_flash_forward" / ".ipynb_checkpoints").mkdir()
    (course / "labs" / "03_flash_forward" / ".ipynb_checkpoints" / "lab.ipynb").write_text("old")
    run(course)
    assert not (course / "work" / "03_flash_forward" / ".ipynb_checkpoints").exists()
