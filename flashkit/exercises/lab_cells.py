"""Takes an exercise's code out of a lab notebook: the one extractor for timing on a GPU, mutants, tests and benchmarks.

A lab names its cells by nbgrader's grade id, which may hold no dot: ``imports`` for the imports that every kernel
needs, ``kernel-03-tile`` for the cell that the student fills, ``03-tile`` for the cell that grades it. Only the
standard library is used, so that a GPU machine without Jupyter can load a solution.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"
IMPORTS = "imports"
KERNEL = "kernel-"  # followed by the grade id of the exercise
USES_ABOVE = "uses-cells-above"
USES_CELL = "uses-cell-"  # followed by the grade id of a cell above
MARKER = re.compile(r"^[ \t]*(?:// )?### (BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)

_modules: list[str] = []
_folder: tempfile.TemporaryDirectory | None = None  # lives as long as the process: Triton reads sources late


class CellError(Exception):
    """A notebook that is no lab, or lacks a cell. Its text is one sentence with the file's name."""


def solution(exercise_id: str, name: str) -> Callable:
    """The course's own function ``name`` of an exercise. Raises CellError in a copy of the course without solutions."""
    return load(course_source(exercise_id), name)


def course_source(exercise_id: str) -> str:
    """:func:`solution_source` of the course's own notebook. Raises CellError in a copy of the course without it."""
    found = sorted(SOLUTIONS.glob(f"{exercise_id[:2]}_*/{exercise_id[:2]}_*.ipynb"))
    if not found:
        raise CellError(f"This copy of the course has no notebook in solutions/ for {exercise_id}.")
    return solution_source(found[0], exercise_id)


def solution_source(path: str | Path, exercise_id: str) -> str:
    """The imports and the kernel cell of an exercise as one module's text, without nbgrader's solution markers.

    A kernel cell with the tag ``uses-cells-above`` comes with the kernel cells above it, one with tags such as
    ``uses-cell-parts`` with those cells.
    ``path`` is a lab's notebook: the teacher's source, a release or a submission. Raises CellError.
    """
    cells, wanted = graded_cells(path), KERNEL + exercise_id.replace(".", "-")
    for grade_id in (IMPORTS, wanted):
        if grade_id not in cells:
            raise CellError(f"{path} has no cell with the grade id {grade_id!r}; there are {', '.join(cells)}.")
    tags, above = _tags(path).get(wanted, ()), list(cells)[: list(cells).index(wanted)]
    all_above = USES_ABOVE in tags
    used = [n for n in above if USES_CELL + n in tags or all_above and n.startswith(KERNEL)]
    used = [IMPORTS, *used, wanted]
    return "\n\n\n".join(MARKER.sub("", cells[name]).strip("\n") for name in used) + "\n"


def _tags(path: str | Path) -> dict[str, list[str]]:
    """The tags of each cell that has some, by grade id."""
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    tagged = [cell["metadata"] for cell in cells if "tags" in cell["metadata"]]
    return {metadata.get("nbgrader", {}).get("grade_id", ""): metadata["tags"] for metadata in tagged}


def graded_cells(path: str | Path) -> dict[str, str]:
    """Source of each code cell that has a grade id, in the notebook's order; the first of two with one id counts."""
    try:
        notebook = json.loads(Path(path).read_text(encoding="utf-8"))
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        found: dict[str, str] = {}
        for cell in cells:
            grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id")
            if grade_id:
                found.setdefault(grade_id, "".join(cell["source"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CellError(f"{path} is no notebook of nbformat 4 ({type(error).__name__}: {error}).") from error
    return found


def load(source: str, name: str) -> Callable:
    """Runs ``source`` as a module of its own, from a real file, and returns what it calls ``name``.

    The file is kept until the process ends. What the source raises is raised here; CellError when it defines no
    ``name``.
    """
    module_name = f"flashkit_cell_{len(_modules)}"
    _modules.append(module_name)
    path = _scratch() / f"{module_name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise CellError(f"The code defines no `{name}`.")
    return getattr(module, name)


def _scratch() -> Path:
    global _folder
    if _folder is None:
        _folder = tempfile.TemporaryDirectory(prefix="flashkit-cells-")
    return Path(_folder.name)
