"""What grading costs beside the student's own code: `python -m benchmarks.grading_overhead` writes the result file.

The solution of lab 03 is graded several times, in one process as `nbgrader autograde` does. The student's own compute
is what its calls and cells take inside the sandbox; the rest is ours: the sandbox's start, and the exercises'.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from flashkit.grading import grade_one, settings
from flashkit.grading.grade import versions

ROOT = Path(__file__).resolve().parents[1]
LAB = "03_flash_forward"
RESULT = ROOT / "benchmarks" / "results" / "grading-overhead.json"
TIMES = 5


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copy(ROOT / settings.CONFIG, root)
        shutil.copytree(ROOT / "labs" / LAB, root / "labs" / LAB)
        runs = [run(root, number) for number in range(TIMES + 1)][1:]  # the first also fills the cache of references
    result = {
        "what": f"solution of lab 03 graded {TIMES} times; seconds",
        "exercises": runs[0]["exercises"],
        "student": spread([r["student"] for r in runs]),
        "start_of_a_submission": spread([r["starting"] for r in runs]),
        "overhead_of_an_exercise": spread([r["rest"] / r["exercises"] for r in runs]),
        "overhead_of_a_submission": spread([r["starting"] + r["rest"] for r in runs]),
        "allowed_of_a_submission": 2.5 + 0.3 * runs[0]["exercises"],
        "cpu_of_the_judge": spread([r["judge_cpu"] for r in runs]),
        "machine": {"cpu": cpu(), "cores": os.cpu_count(), "os": platform.release()},
        "load_average": round(os.getloadavg()[0], 1),
        "versions": versions(),
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


def run(root: Path, number: int) -> dict[str, float]:
    """One submission, different from the last by a comment, so that no result is read from a file."""
    notebook = json.loads((ROOT / "solutions" / LAB / f"{LAB}.ipynb").read_text())
    comment = {"cell_type": "code", "id": "number", "metadata": {}, "source": f"# {number}", "outputs": []}
    notebook["cells"].append({**comment, "execution_count": None})
    path = root / "submitted" / f"student-{number}" / LAB / f"{LAB}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(notebook))
    before = time.process_time()
    _, result = grade_one.grade_file(path)
    judge_cpu = time.process_time() - before
    teacher = result["teacher"]
    student = sum(record["student_seconds"] for record in teacher["seeds"].values())
    total, starting = teacher["seconds"]["total"], teacher["seconds"]["starting"]
    rest = total - starting - student
    times = {"student": student, "starting": starting, "rest": rest, "judge_cpu": judge_cpu}
    return {**times, "exercises": len(teacher["seeds"])}


def spread(values: list[float]) -> dict[str, float]:
    median = statistics.median(values)
    return {"median": round(median, 3), "least": round(min(values), 3), "most": round(max(values), 3)}


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
