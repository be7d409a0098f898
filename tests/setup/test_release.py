"""`make release`: the same bytes each time, points from the exercises, nothing but labs/ touched."""

import os
import tempfile
from pathlib import Path

import nbformat
import pytest

from tools import release

ROOT = Path(__file__).resolve().parents[2]
BLANK = "raise NotImplementedError()"


def grade(grade_id, **kind):
    return {"schema_version": 3, "grade_id": grade_id, "grade": False, "solution": False, "locked": False, **kind}


def cell(make, source, ident, nbgrader=None):
    made = make(source, id=ident)
    made.metadata = {"nbgrader": nbgrader} if nbgrader else {}
    return made


@pytest.fixture
def solutions(tmp_path):
    """One assignment with a solution, a grade cell of 0 points, an output, and a machine's metadata."""
    code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    notebook = nbformat.v4.new_notebook(
        metadata={"language_info": {"name": "python", "version": "3.11.7"}, "widgets": {"state": {}}},
        cells=[
            cell(text, "# Lab", "title"),
            cell(
                code,
                "### BEGIN SOLUTION\nanswer = 42\n### END SOLUTION",
                "answer",
                grade("tile-answer", solution=True),
            ),
            cell(code, "check('03.tile')", "grade", grade("03-tile", grade=True, locked=True, points=0)),
        ],
    )
    notebook.cells[2].outputs = [nbformat.v4.new_output("stream", text="right")]
    notebook.cells[2].execution_count = 7
    folder = tmp_path / "solutions" / "03_lab"
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / "lab.ipynb")
    return tmp_path / "solutions"


def generate(solutions, points=lambda grade_id: 4.0):
    with tempfile.TemporaryDirectory() as scratch:
        release.generate(solutions, Path(scratch), points)
        labs = Path(scratch) / "labs"
        return {path.relative_to(labs).as_posix(): path.read_bytes() for path in labs.rglob("*") if path.is_file()}


def test_a_release_has_the_exercises_points_and_holds_no_answer(solutions):
    asked = []
    made = generate(solutions, lambda grade_id: asked.append(grade_id) or 12.5)
    assert list(made) == ["03_lab/lab.ipynb"]
    text = made["03_lab/lab.ipynb"].decode()
    assert "answer = 42" not in text and BLANK in text
    assert '"version"' not in text and '"widgets"' not in text and "right" not in text
    cells = nbformat.reads(text, as_version=4).cells
    assert asked == ["03.tile"] and cells[2].metadata.nbgrader.points == 12.5


def test_a_cell_without_an_id_is_refused(solutions):
    path = solutions / "03_lab" / "lab.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.nbformat_minor = 4
    for each in notebook.cells:
        each.pop("id")
    nbformat.write(notebook, path)
    with pytest.raises(release.ReleaseError, match="03_lab/lab.ipynb: cell 0 has no id"):
        generate(solutions)


def test_what_nbgrader_refuses_is_told_with_its_words(solutions):
    path = solutions / "03_lab" / "lab.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[2].metadata.nbgrader.grade_id = "tile-answer"
    nbformat.write(notebook, path)
    with pytest.raises(release.ReleaseError, match="refused solutions/03_lab: .*Duplicate grade id: tile-answer"):
        generate(solutions)


def test_labs_become_what_was_made_and_nothing_else_is_touched(tmp_path):
    made, labs = tmp_path / "made", tmp_path / "labs"
    for folder, files in {
        made: {"a/lab.ipynb": "new", "b/lab.ipynb": "same"},
        labs: {"b/lab.ipynb": "same", "c/old.ipynb": ""},
    }.items():
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
    before = os.stat(labs / "b" / "lab.ipynb").st_mtime_ns
    assert release.synchronise(made, labs) == ["removed labs/c/old.ipynb", "wrote labs/a/lab.ipynb"]
    assert (labs / "a" / "lab.ipynb").read_text() == "new" and not (labs / "c" / "old.ipynb").exists()
    assert os.stat(labs / "b" / "lab.ipynb").st_mtime_ns == before
    assert release.synchronise(made, labs) == []


def test_the_committed_labs_are_what_solutions_give():
    """So two releases are the same bytes, made at different times and perhaps on different machines."""
    made = generate(ROOT / "solutions", release.points_of)
    labs = ROOT / "labs"
    assert made and made == {
        path.relative_to(labs).as_posix(): path.read_bytes()
        for path in labs.rglob("*")
        if path.is_file() and ".ipynb_checkpoints" not in path.parts
    }
