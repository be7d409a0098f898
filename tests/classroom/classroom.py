"""A class's folder with lab 03, driven through nbgrader's own commands, as a teacher would."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from flashkit.grading import sandbox

ROOT = Path(__file__).resolve().parents[2]
LAB = "03_flash_forward"
CHECKS = ("03-tile", "03-rows", "03-causal", "03-heads")
SHORT = {  # so that ends come soon; none of them is a time that honest work could need on a busy machine
    '"seconds_per_exercise": 60': '"seconds_per_exercise": 300',
    '"seconds_per_cell": 30': '"seconds_per_cell": 20',
    '"memory_gib": 4': '"memory_gib": 1',
    '"processes": 64': '"processes": 8',
}


class Classroom:
    """``folder`` becomes a course folder: config, solutions of lab 03, release, then submissions and grades."""

    def __init__(self, folder: Path, config: dict[str, str] | None = None):
        assert sandbox.available(), "hostile students need a sandbox that works"
        self.folder = folder
        (folder / "home" / "tmp").mkdir(parents=True)
        text = (ROOT / "grader_config.py").read_text()
        for old, new in (SHORT | (config or {})).items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (folder / "grader_config.py").write_text(text)
        shutil.copy(ROOT / "nbgrader_config.py", folder)
        shutil.copytree(ROOT / "solutions" / LAB, folder / "solutions" / LAB, dirs_exist_ok=True)
        self.nbgrader("generate_assignment", LAB, "--create", "--force")

    def environment(self) -> dict[str, str]:
        """No settings of the user who runs the tests; the course importable; nbgrader finds its alembic by PATH."""
        home = str(self.folder / "home")
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": home,  # and, like TMPDIR, the mark of every process that this class starts
            "TMPDIR": f"{home}/tmp",
            "JUPYTER_CONFIG_DIR": home,
            "JUPYTER_DATA_DIR": home,
        }

    def nbgrader(self, *words: str, expect: int = 0, seconds: float = 1500) -> str:
        """Runs an nbgrader command in the folder; returns what it said."""
        done = subprocess.run(
            [sys.executable, "-m", "nbgrader", *words],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == expect, f"nbgrader {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def left_running(self) -> list[str]:
        """Command lines of processes that this class started and that have not ended."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has just ended, or is another user's
                words = process.joinpath("cmdline").read_bytes() + process.joinpath("environ").read_bytes()
                if str(self.folder).encode() in words:
                    found.append(words[:200].decode(errors="replace"))
        return found

    # ---- what is handed in and what comes of it ----------------------------------------------------------

    def released(self) -> dict[str, Any]:
        return json.loads((self.folder / "labs" / LAB / f"{LAB}.ipynb").read_text())

    def hand_in(self, student: str, content: bytes) -> None:
        folder = self.folder / "submitted" / student / LAB
        folder.mkdir(parents=True)
        (folder / f"{LAB}.ipynb").write_bytes(content)

    def result(self, student: str) -> dict[str, Any]:
        return json.loads((self.folder / "results" / LAB / student / f"{LAB}.json").read_text())

    def feedback(self, student: str) -> str:
        return (self.folder / "feedback" / student / LAB / f"{LAB}.html").read_text()

    def export(self) -> dict[str, dict[str, str]]:
        self.nbgrader("export", "--to", "grades.csv")
        with open(self.folder / "grades.csv") as file:
            return {row["student_id"]: row for row in csv.DictReader(file)}

    def scores(self, student: str) -> dict[str, float | None]:
        """What nbgrader's gradebook holds: grade id -> automatic score."""
        from nbgrader.api import Gradebook

        with Gradebook(f"sqlite:///{self.folder / 'gradebook.db'}") as gradebook:
            grades = gradebook.find_submission_notebook(LAB, LAB, student).grades
            return {grade.name: grade.auto_score for grade in grades}
