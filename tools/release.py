"""Makes labs/ from solutions/ with nbgrader, in a scratch folder with a scratch gradebook; work/ is not touched.

The same solutions/ give the same bytes: no outputs, no machine's metadata, sorted keys, ids from the source.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import nbformat

import grader_config
from flashkit.grading.grade import cell_points

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ("grader_config.py", "nbgrader_config.py")


class ReleaseError(Exception):
    """One line for the teacher: which notebook, what is wrong."""


def main() -> int:
    try:
        with tempfile.TemporaryDirectory() as scratch:
            generate(ROOT / "solutions", Path(scratch), points_of)
            changed = synchronise(Path(scratch) / "labs", ROOT / "labs")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print("\n".join(f"release: {line}" for line in changed) or "release: labs/ is up to date.")
    return 0


def generate(solutions: Path, scratch: Path, points: Callable[[str], float]) -> None:
    """Fills scratch/labs from `solutions`; `points` gives those of an exercise, by its id.

    Raises ReleaseError, with nbgrader's words when it is nbgrader that refuses.
    """
    litter = shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__")
    shutil.copytree(solutions, scratch / "solutions", ignore=litter)
    for name in CONFIG:
        shutil.copy(ROOT / name, scratch / name)
    for path in notebooks_in(scratch / "solutions"):
        stamp(path, points)
    generate_assignments(scratch)
    for path in notebooks_in(scratch / "labs"):
        make_plain(path)


def notebooks_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.ipynb"))


def stamp(path: Path, points: Callable[[str], float]) -> None:
    """Writes each graded cell's points, which belong to the exercise, into nbgrader's metadata."""
    notebook = nbformat.read(path, as_version=4)
    for position, cell in enumerate(notebook.cells):
        if "id" not in cell:
            raise ReleaseError(f"{path.parent.name}/{path.name}: cell {position} has no id; save it with nbformat 4.5.")
        graded = cell.metadata.get("nbgrader", {})
        if graded.get("grade"):
            graded["points"] = points(exercise_id(graded["grade_id"]))
    nbformat.write(notebook, path)


def points_of(exercise: str) -> float:
    """As nbgrader's own generate_assignment stamps them: GPU cells count only in a class that requires a GPU."""
    return cell_points(exercise, grader_config.GPU)


def exercise_id(grade_id: str) -> str:
    """nbgrader allows no dot in an id: the cell `03-heads` grades exercise `03.heads`."""
    return grade_id.replace("-", ".")


def generate_assignments(scratch: Path) -> None:
    """Runs nbgrader there; it finds its alembic by name, hence PATH, and no user's settings, hence the folder.

    One run for all assignments: its start takes longer than its work.
    """
    environment = dict(
        os.environ,
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        JUPYTER_CONFIG_DIR=str(scratch),
        PYTHONPATH=str(ROOT),
    )
    command = [sys.executable, "-m", "nbgrader", "generate_assignment", "*", "--create", "--force"]
    done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True)
    if done.returncode:
        cause = re.search(r"^\s*[\w.]*(?:Error|Exception): (.+)$", done.stderr, re.MULTILINE)
        where = re.search(r"error processing assignment: \S*/(\S+)", done.stderr)
        name = where[1] if where else ""
        raise ReleaseError(f"nbgrader refused solutions/{name}: {cause[1] if cause else done.stderr.strip()}")


def make_plain(path: Path) -> None:
    """Drops what depends on the machine that last saved the notebook."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        kept = ("nbgrader", "tags", "slideshow", "jupyter", "editable", "deletable")
        cell.metadata = {key: value for key, value in cell.metadata.items() if key in kept}
    nbformat.write(notebook, path)


def synchronise(made: Path, labs: Path) -> list[str]:
    """Makes `labs` equal to `made`, touching only what differs. Returns a line for each file changed."""
    new = {path.relative_to(made): path.read_bytes() for path in made.rglob("*") if path.is_file()}
    old = {
        path.relative_to(labs): path.read_bytes()
        for path in labs.rglob("*")
        if path.is_file() and ".ipynb_checkpoints" not in path.parts
    }
    for name in sorted(old.keys() - new.keys()):
        (labs / name).unlink()
    for name, content in new.items():
        if old.get(name) != content:
            (labs / name).parent.mkdir(parents=True, exist_ok=True)
            (labs / name).write_bytes(content)
    removed = [f"removed labs/{name}" for name in sorted(old.keys() - new.keys())]
    return removed + [f"wrote labs/{name}" for name in sorted(new) if old.get(name) != new[name]]


if __name__ == "__main__":
    sys.exit(main())
