"""The progress file: local, written whole, never in the way."""

import json

import pytest

from flashkit import progress as module
from flashkit.progress import answered, checked, progress, read


@pytest.fixture(autouse=True)
def file(monkeypatch, tmp_path):
    monkeypatch.setenv("FLASHKIT_PROGRESS", str(tmp_path / "progress.json"))
    return tmp_path / "progress.json"


def test_nothing_yet():
    assert str(progress()) == "Nothing yet: answer a box or check an exercise."


def test_it_keeps_chapters_boxes_and_the_best_points(file):
    read("03")
    answered("03.tail", False)
    answered("03.tail", True)
    answered("03.tail", False)
    checked("03.tile", 12.0, 15.0)
    checked("03.tile", 3.0, 15.0)
    assert json.loads(file.read_text())["boxes"] == {"03.tail": {"tries": 3, "right": True}}
    assert str(progress()) == "chapter 03: read yes; boxes: 1 right of 1 tried; checks: 03.tile 12 of 15"
    assert "<td style='text-align:left'>03.tile 12 of 15</td>" in progress()._repr_html_()
    assert "<th scope='col' style='text-align:left'>checks</th>" in progress()._repr_html_()  # above its column
    assert [path.name for path in file.parent.iterdir()] == ["progress.json"]


@pytest.mark.parametrize("text", ["{", "[1]", '{"surprise": 1}', "\x00"])
def test_a_file_that_cannot_be_read_is_put_aside(file, text, capsys):
    file.write_text(text)
    read("01")
    assert progress().chapters == ["01"]
    assert (file.parent / "progress.unreadable.json").read_text() == text
    assert "could not be read and is now progress.unreadable.json" in capsys.readouterr().err


def test_without_a_folder_nothing_is_kept_and_nothing_fails(monkeypatch, tmp_path):
    monkeypatch.setenv("FLASHKIT_PROGRESS", str(tmp_path / "missing" / "progress.json"))
    read("01")
    assert progress().chapters == []
    assert not (tmp_path / "missing").exists()


def test_tests_are_no_learners_progress():
    assert not module.in_a_notebook()


def test_by_default_it_lies_where_git_does_not_look(monkeypatch):
    monkeypatch.delenv("FLASHKIT_PROGRESS")
    assert module.place() == module.COURSE / "work" / "progress.json"
    assert "/work/" in (module.COURSE / ".gitignore").read_text().splitlines()
