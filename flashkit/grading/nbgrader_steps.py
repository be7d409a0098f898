"""What nbgrader runs in place of its own steps: reading, rebuilding, judging and saving a submission's grades.

nbgrader remains the frame. Its own Execute and SaveAutoGrades take the grade from what a notebook printed; these take
it from a result (:mod:`flashkit.grading.results`), which the judge made outside of the student's reach.
"""

from __future__ import annotations

import hashlib
import html
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbconvert.preprocessors import Preprocessor
from nbgrader.api import Gradebook
from nbgrader.converters import base
from nbgrader.coursedir import CourseDirectory

from flashkit.grading import results, settings
from flashkit.grading.grade import cell_points, graded
from flashkit.grading.handed_in import is_plain, plain_files, rebuilt
from flashkit.grading.sanitise import Submission, rebuild

RECORD = "flashkit"  # key of our own notebook metadata
TIMESTAMP_LIMIT = 100  # bytes of the file that says when it was handed in
_all_files, _timestamp = base.find_all_files, CourseDirectory.get_existing_timestamp


def _plain_files(path: str, exclude: list[str] | None = None) -> list[str]:
    """What nbgrader copies beside a notebook, and then into the feedback. It follows links; no setting stops it."""
    return plain_files(_all_files(path, exclude), path)


def _plain_timestamp(coursedir: CourseDirectory, folder: str) -> datetime | None:
    """When it was handed in, if a plain file says so: nbgrader would wait for a pipe and read a device without end."""
    return _timestamp(coursedir, folder) if is_plain(Path(folder, "timestamp.txt"), TIMESTAMP_LIMIT) else None


base.find_all_files, CourseDirectory.get_existing_timestamp = _plain_files, _plain_timestamp


class StampPoints(Preprocessor):
    """First step of a release: a check with 0 points in the source gets those of its exercise and of the config."""

    enabled = True

    def preprocess(self, nb, resources):
        gpu = settings.load(_root(self.parent)).gpu
        for cell in nb.cells:
            named = cell.metadata.get("nbgrader", {})
            if named.get("grade") and not named.get("points"):
                named["points"] = cell_points(named["grade_id"], gpu)
        return nb, resources


class SubmissionExporter(NotebookExporter):
    """Reads a submission whatever its bytes are, so that no file can stop a run."""

    def from_filename(self, filename: str, resources: dict | None = None, **kwargs: Any):
        if not any(isinstance(step, Rebuild) for step in self._preprocessors):
            return super().from_filename(filename, resources, **kwargs)
        submission = rebuilt(Path(filename), json.loads(_release(self, resources).read_text(encoding="utf-8")))
        notebook = nbformat.from_dict(submission.notebook)
        notebook.metadata[RECORD] = {"input_sha256": submission.sha256, "notes": submission.notes}
        return self.from_notebook_node(notebook, resources, **kwargs)


class Rebuild(Preprocessor):
    """Marks nbgrader's first pass, in which SubmissionExporter rebuilds the notebook on the released one."""

    enabled = True

    def preprocess(self, nb, resources):
        return nb, resources


class JudgeAndSave(Preprocessor):
    """Judges the rebuilt notebook, shows the reports in its cells and writes the scores into the gradebook."""

    enabled = True

    def preprocess(self, nb, resources):
        root, names = _root(self.parent), resources["nbgrader"]
        chosen = settings.load(root)
        path = results.result_path(root, names["assignment"], names["student"], names["notebook"])
        result = graded(_submission(nb), chosen, root, path)
        nb.metadata.pop(RECORD, None)
        show(nb, result)
        with Gradebook(names["db_url"]) as gradebook:
            save(gradebook, result, names["notebook"], names["assignment"], names["student"])
        return nb, resources


def _root(exporter) -> Path:
    return Path(exporter.parent.coursedir.root)


def _release(exporter, resources) -> Path:
    """The released notebook that a submission is rebuilt on."""
    coursedir, names = exporter.parent.coursedir, resources["nbgrader"]
    folder = coursedir.format_path(coursedir.release_directory, ".", names["assignment"])
    path = Path(folder) / f"{names['notebook']}.ipynb"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: run `nbgrader generate_assignment {names['assignment']}` first.")
    return path


def _submission(nb) -> Submission:
    """The rebuilt notebook again as a Submission: rebuilding what is rebuilt changes nothing."""
    record = nb.metadata.get(RECORD, {})
    plain = json.loads(nbformat.writes(nb))
    submission = rebuild(json.dumps(plain).encode(), plain)
    submission.notes = list(record.get("notes", []))
    submission.sha256 = record.get("input_sha256", hashlib.sha256(b"").hexdigest())
    return submission


# ---- what the student sees ------------------------------------------------------------------------------


def show(nb, result: dict[str, Any]) -> None:
    """Puts reports under the checks, what went wrong under the cells that failed, and notes at the top."""
    for position, cell in enumerate(nb.cells):
        graded = result["cells"].get(cell.metadata.get("nbgrader", {}).get("grade_id"))
        problem = result["code"].get(str(position))
        if cell.cell_type == "code":
            cell.outputs = []
            if graded:
                data = {"text/plain": graded["text"], "text/html": graded["html"]}
                cell.outputs = [nbformat.v4.new_output("display_data", data)]
            elif problem:
                cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=f"This cell failed: {problem}\n")]
    if result["notes"]:
        items = "".join(f"<li>{html.escape(note)}</li>" for note in result["notes"])
        text = f"**About the file that was handed in**\n\n<ul>{items}</ul>"
        cell = nbformat.v4.new_markdown_cell(text)
        cell.id = "about-the-file"
        nb.cells.insert(0, cell)


# ---- the gradebook --------------------------------------------------------------------------------------


def save(gradebook: Gradebook, result: dict[str, Any], notebook: str, assignment: str, student: str) -> None:
    """Writes each cell's score as a plain float between 0 and its points; what was not judged stays open."""
    submission = gradebook.find_submission_notebook(notebook, assignment, student)
    for grade in submission.grades:
        judged = result["cells"].get(grade.name)
        if judged is None:
            continue
        share = judged["share"]
        grade.auto_score = None if share is None else results.clamped(share * grade.max_score, grade.max_score)
        if share is not None and not grade.max_score:  # a bonus; a teacher's extra credit elsewhere is let alone
            grade.extra_credit = judged["points"]
        grade.needs_manual_grade = share is None or grade.manual_score is not None
    for comment in submission.comments:
        comment.auto_comment = None
    gradebook.db.commit()
