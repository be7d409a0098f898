"""What a reader does in notebooks is kept in one local file and shown in chapter 00; what tests do is not."""

import json
import os
from pathlib import Path

import nbformat
import pytest

from flashkit import progress
from tests.notebooks.execution import ROOT, execute

CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ANSWERS = 'from flashkit.predict import predict\n\npredict("01.one-matrix").box.answer("512")'


def cells_of(path: Path) -> dict:
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


@pytest.fixture
def hour(tmp_path):
    """A reader's hour in short: chapter 00's first kernel is checked, a box answered, every chapter's end reached."""
    start = cells_of(CHAPTERS[0])
    cells = [start[ident] for ident in ("machine", "first-kernel-code", "first-host", "first-check-run")]
    cells += [nbformat.v4.new_code_cell(ANSWERS, id="answer")]
    for path in CHAPTERS:
        last = nbformat.read(path, as_version=4).cells[-1]
        cells += [nbformat.v4.new_code_cell(last.source, id=f"read-{path.stem[:2]}")]
    cells += [start["progress-table"]]
    folder = tmp_path / "hour"
    folder.mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "hour.ipynb")
    return folder / "hour.ipynb"


def real_file() -> tuple | None:
    """The developer's own progress file: its content and when it was written."""
    file = progress.COURSE / "work" / "progress.json"
    return (file.read_bytes(), file.stat().st_mtime_ns) if file.exists() else None


def test_chapters_boxes_and_checks_are_kept_and_shown(hour, tmp_path, monkeypatch):
    file, before = tmp_path / "kept" / "progress.json", real_file()
    file.parent.mkdir()
    monkeypatch.setenv("FLASHKIT_PROGRESS", str(file))
    shown = execute(hour, tmp_path)
    kept = json.loads(file.read_text())
    assert kept["chapters"] == [path.stem[:2] for path in CHAPTERS]
    assert kept["boxes"] == {"01.one-matrix": {"tries": 1, "right": True}}
    assert kept["checks"] == {"00.add": {"points": 0.0, "out_of": 5.0}}
    assert "chapter 01: read yes; boxes: 1 right of 1 tried; checks: none yet" in shown["progress-table"].value
    assert "chapter 00: read yes; boxes: none yet; checks: 00.add 0 of 5" in shown["progress-table"].value
    assert [path.name for path in file.parent.iterdir()] == ["progress.json"]
    assert real_file() == before


def test_a_notebook_that_a_test_runs_is_no_learners_progress(hour, tmp_path):
    """tests/conftest.py points every process that a test starts at a place where no file can be."""
    before = real_file()
    assert os.environ["FLASHKIT_PROGRESS"].startswith(os.devnull) and not progress.place().parent.is_dir()
    shown = execute(hour, tmp_path)
    assert shown["progress-table"].value == "Nothing yet: answer a box or check an exercise."
    assert real_file() == before
