"""Rebuilds a submission from the release's skeleton and the student's code, whatever was done to the file.

The skeleton gives every cell that is not the student's to change, all metadata, the kernel and the order of what is
missing. The student gives code, in the student's order: graded cells matched by grade id, else by cell id; all other
code as cells of their own. Nothing a file can hold stops a run: what cannot be read becomes a note in the feedback.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from flashkit.grading.room import CodeCell

SOURCE_LIMIT = 2**20  # characters of one cell
CELL_LIMIT = 2000
MISSING = "# This cell was missing from the submission."
NOT_PYTHON = "# This cell was removed before grading: it held no Python but the magic %%{name}."
CELL_MAGIC = re.compile(r"^\s*%%(\w+)[^\n]*\n?")
MAGIC = re.compile(r"^(?P<indent>\s*)(?P<target>[\w, ]+=\s*)?(?:[%!]|\?{1,2}\s*\w|\w[\w.]*\?{1,2}\s*$).*")
PYTHON_MAGICS = ("time", "timeit", "capture", "prun")  # their cell is Python all the same


@dataclass
class Submission:
    """notebook: nbformat 4 JSON, rebuilt; code: its code cells that run, in order; upto: grade id -> how many of them
    come before its check; at: number of a code cell -> its position in the notebook; notes: for the feedback."""

    notebook: dict[str, Any]
    sha256: str
    code: list[CodeCell] = field(default_factory=list)
    at: dict[int, int] = field(default_factory=dict)
    upto: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def exercise_id(grade_id: str) -> str:
    """nbgrader allows no dot in an id: the cell ``03-heads`` grades exercise ``03.heads``."""
    return grade_id.replace("-", ".")


def rebuild(content: bytes, skeleton: Mapping[str, Any]) -> Submission:
    """The submission in ``content`` on the release notebook ``skeleton``. Never raises for what the bytes hold."""
    notes: list[str] = []
    cells = _Merge(skeleton["cells"], notes).merged(read_cells(content, notes))
    notebook = {
        "cells": cells,
        "metadata": copy.deepcopy(dict(skeleton["metadata"])),
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    submission = Submission(notebook, hashlib.sha256(content).hexdigest(), notes=notes)
    _number(submission)
    return submission


# ---- reading anything -----------------------------------------------------------------------------------


def read_cells(content: bytes, notes: list[str]) -> list[dict[str, Any]]:
    """The cells of a notebook file, each with type, source, metadata and id, as far as they can be made out."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
        notes.append("The file is not UTF-8; it was read as Latin-1.")
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        notes.append("The file is no notebook: it is empty or not JSON. Download it again and hand it in once more.")
        return []
    found = notebook.get("cells") if isinstance(notebook, dict) else None
    if found is None and isinstance(notebook, dict):  # nbformat 3
        sheets = [sheet for sheet in _list(notebook.get("worksheets")) if isinstance(sheet, dict)]
        found = [cell for sheet in sheets for cell in _list(sheet.get("cells"))] or None
    if not isinstance(found, list):
        notes.append("The file holds no list of cells, so there is nothing to grade.")
        return []
    if len(found) > CELL_LIMIT:
        notes.append(f"Only the first {CELL_LIMIT} cells were read.")
    return [_cell(cell, notes) for cell in found[:CELL_LIMIT] if isinstance(cell, dict)]


def _cell(cell: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    source = cell.get("source", cell.get("input", ""))
    source = "".join(part for part in source if isinstance(part, str)) if isinstance(source, list) else source
    source = source if isinstance(source, str) else ""
    if len(source) > SOURCE_LIMIT:
        notes.append("A cell of over a million characters was left out.")
        source = ""
    metadata = cell.get("metadata")
    graded = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = graded.get("grade_id") if isinstance(graded, dict) else None
    return {
        "type": "code" if cell.get("cell_type") == "code" else "markdown",
        "source": source.replace("\x00", "").encode("utf-8", "replace").decode(),
        "grade_id": grade_id if isinstance(grade_id, str) else None,
        "id": cell.get("id") if isinstance(cell.get("id"), str) else None,
    }


def _list(value: Any) -> list:
    return value if isinstance(value, list) else []


# ---- merging --------------------------------------------------------------------------------------------


class _Merge:
    """The student's cells in their order, the skeleton's in place of what was theirs, and the missing ones put back."""

    def __init__(self, skeleton: Sequence[Mapping[str, Any]], notes: list[str]):
        self.skeleton, self.notes = list(skeleton), notes
        self.by_grade = {g: n for n, cell in enumerate(self.skeleton) if (g := _grade_id(cell))}
        self.by_id = {cell.get("id"): n for n, cell in enumerate(self.skeleton) if cell.get("id")}
        self.placed: list[tuple[int | None, dict[str, Any]]] = []  # number in the skeleton, cell
        self.used: set[int] = set()

    def merged(self, submitted: list[dict[str, Any]]) -> list[dict[str, Any]]:
        numbers = self._numbers(submitted)
        for cell, number in zip(submitted, numbers, strict=True):
            if number is None or number in self.used:
                self._own(cell, doubled=number)
            else:
                self.used.add(number)
                self._known(cell, number)
        for number in range(len(self.skeleton)):
            if number not in self.used:
                self._put_back(number)
        cells = [cell for _, cell in self.placed]
        for position, cell in enumerate(cells):
            cell["id"] = cell.get("id") or f"own-{position}"
        return cells

    def _numbers(self, submitted) -> list[int | None]:
        """Which cell of the skeleton each is: grade ids first, so that a copied cell id cannot take another's place."""
        numbers = [self.by_grade.get(cell["grade_id"]) for cell in submitted]
        taken = set(numbers)
        for position, cell in enumerate(submitted):
            number = self.by_id.get(cell["id"])
            if numbers[position] is None and number is not None and number not in taken:
                numbers[position] = number
                taken.add(number)
        return numbers

    def _known(self, cell: dict[str, Any], number: int) -> None:
        own = self.skeleton[number]
        graded = own.get("metadata", {}).get("nbgrader", {})
        fixed = graded.get("locked") or graded.get("grade") or own["cell_type"] != "code"
        self.placed.append((number, _copy(own, None if fixed else without_magics(cell["source"]))))
        changed = cell["source"].strip() != _source(own).strip()
        if fixed and changed and graded.get("grade"):
            self.notes.append(
                f"The check of {exercise_id(graded['grade_id'])} had been changed; the released one counts."
            )
        elif fixed and changed and own["cell_type"] == "code" and cell["type"] == "code":
            self._own(cell)  # what stood in a locked cell still runs, after the released one

    def _own(self, cell: dict[str, Any], doubled: int | None = None) -> None:
        """A cell of the student's own. A second copy of a graded cell runs too, but a second check has no meaning."""
        graded = self.skeleton[doubled].get("metadata", {}).get("nbgrader", {}) if doubled is not None else {}
        if graded.get("grade") and not graded.get("solution"):
            self.notes.append(f"A second copy of the check of {exercise_id(graded['grade_id'])} was left out.")
        elif cell["type"] == "code" or graded:
            source = without_magics(cell["source"])
            new = {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
            self.placed.append((None, new))
        elif cell["source"].strip():
            self.placed.append((None, {"cell_type": "markdown", "metadata": {}, "source": as_typed(cell["source"])}))

    def _put_back(self, number: int) -> None:
        """A missing cell goes after the one that it follows in the skeleton; a blank that was deleted stays one."""
        own = self.skeleton[number]
        graded = own.get("metadata", {}).get("nbgrader", {})
        solution = graded.get("solution") and own["cell_type"] == "code"
        before = [n for n, (known, _) in enumerate(self.placed) if known is not None and known < number]
        position = before[-1] + 1 if before else 0
        while before and position < len(self.placed) and self.placed[position][0] is None:
            position += 1  # the student's own cells stay where they were
        self.placed.insert(position, (number, _copy(own, MISSING if solution else None)))
        if graded:
            self.notes.append(f"The cell {graded['grade_id']} was missing and has been put back.")


def _grade_id(cell: Mapping[str, Any]) -> str | None:
    return cell.get("metadata", {}).get("nbgrader", {}).get("grade_id")


def _source(cell: Mapping[str, Any]) -> str:
    return "".join(cell["source"])


def _copy(cell: Mapping[str, Any], source: str | None) -> dict[str, Any]:
    new = {
        "cell_type": cell["cell_type"],
        "id": cell.get("id"),
        "metadata": copy.deepcopy(dict(cell.get("metadata", {}))),
        "source": _source(cell) if source is None else source,
    }
    return {**new, "outputs": [], "execution_count": None} if new["cell_type"] == "code" else new


def as_typed(text: str) -> str:
    """Markdown that shows a student's own text letter by letter, since formgrader shows it to a teacher.

    A link could run a script there, and a pasted picture, which stays behind, would stop the feedback.
    """
    fence = "`" * (3 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def without_magics(source: str) -> str:
    """Python alone, line for line: what only IPython understands is replaced, in code that Python does not take."""
    found = CELL_MAGIC.match(source)
    if found and found[1] not in PYTHON_MAGICS:
        return NOT_PYTHON.format(name=found[1])
    source = CELL_MAGIC.sub("# a magic was removed here\n", source, count=1) if found else source
    if _parses(source):
        return source
    return "\n".join(map(_without_magic, source.split("\n")))


def _without_magic(line: str) -> str:
    found = MAGIC.match(line)
    if not found:
        return line
    target = (found["target"] or "").rstrip()
    return f"{found['indent']}{target + ' None' if target else 'pass'}  # a magic was removed here"


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


# ---- what runs ------------------------------------------------------------------------------------------


def _number(submission: Submission) -> None:
    """Names the code cells that run, and notes how many of them come before each check."""
    solved: dict[str, int] = {}
    for position, cell in enumerate(submission.notebook["cells"]):
        graded = cell["metadata"].get("nbgrader", {})
        if cell["cell_type"] != "code":
            continue
        if graded.get("grade") and not graded.get("solution"):
            before = solved.get(graded["grade_id"], 0)
            submission.upto[graded["grade_id"]] = max(before, len(submission.code))
            continue
        number = len(submission.code)
        name = f"{graded['grade_id']} (cell {position + 1})" if graded else f"cell {position + 1}"
        submission.code.append(CodeCell(PurePath(name).name, cell["source"]))
        submission.at[number] = position
        if graded.get("solution"):
            of = graded["grade_id"].removeprefix("kernel-")
            solved[of] = number + 1
            if of in submission.upto:  # the check was moved above its kernel
                submission.upto[of] = max(submission.upto[of], number + 1)
