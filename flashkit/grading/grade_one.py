"""Grades one submitted notebook: `python -m flashkit.grading.grade_one SUBMISSION` writes results/.../NOTEBOOK.json.

Idempotent: the same file, settings and seed give the result that is there already. The gradebook is not touched;
`nbgrader autograde` reads the result later. Exit status 0 when there is a result, whatever it says of the student.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from flashkit.grading import results, settings
from flashkit.grading.gpu_cells import fill
from flashkit.grading.grade import graded
from flashkit.grading.handed_in import rebuilt


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="flashkit.grading.grade_one", description=__doc__.partition("\n")[0])
    parser.add_argument("submission", type=Path, help="submitted/STUDENT/ASSIGNMENT/NOTEBOOK.ipynb of a class's folder")
    parser.add_argument("--gpu-only", action="store_true", help="judge only what waits for a GPU, where there is one")
    chosen = parser.parse_args(arguments)
    try:
        path, result = grade_file(chosen.submission, chosen.gpu_only)
    except (OSError, ValueError) as error:
        print(f"grade-one: {error}", file=sys.stderr)
        return 1
    earned = {name: cell["points"] for name, cell in result["cells"].items()}
    print(f"grade-one: {path}: {json.dumps(earned)}")
    return 0


def grade_file(submission: Path, gpu_only: bool = False) -> tuple[Path, dict]:
    """The result of a file at submitted/STUDENT/ASSIGNMENT/NOTEBOOK.ipynb, and where it was written.

    ``gpu_only`` fills what waits for a GPU into the result that there is.
    """
    submission = Path(os.path.abspath(submission))  # where it lies: a link does not say whose it is
    if len(submission.parents) < 4 or submission.suffix != ".ipynb":
        raise ValueError(f"{submission} is no submitted/STUDENT/ASSIGNMENT/NOTEBOOK.ipynb.")
    root, student, assignment = submission.parents[3], submission.parents[1].name, submission.parents[0].name
    chosen = settings.load(root)
    released = root / chosen.folders["release"] / assignment / submission.name
    if not released.is_file():
        known = " or ".join(sorted(path.name for path in released.parent.glob("*.ipynb")))
        todo = f"rename it to {known}." if known else f"run `nbgrader generate_assignment {assignment}` first."
        raise ValueError(f"{released.parent} holds no {released.name}: {todo}")
    handed_in = rebuilt(submission, json.loads(released.read_text(encoding="utf-8")))
    path = results.result_path(root, assignment, student, submission.stem)
    return path, fill(handed_in, chosen, root, path) if gpu_only else graded(handed_in, chosen, root, path)


if __name__ == "__main__":
    sys.exit(main())
