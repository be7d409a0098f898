"""A Slurm array script that grades a class, one task a submission, for clusters where Dask is not wanted."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from flashkit.grading.results import FOLDER

SCRIPT = """#!/bin/bash
#SBATCH --job-name=grade-{assignment}
#SBATCH --array=1-{count}
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=00:30:00
#SBATCH --output={folder}/slurm-%a.log
{gpu}cd {root}
exec {python} -m flashkit.grading.grade_one "$(sed -n "${{SLURM_ARRAY_TASK_ID}}p" {listed})"{options}
"""


def write(root: Path, assignment: str, notebooks: Sequence[Path], options: Sequence[str]) -> Path:
    """Writes results/ASSIGNMENT/slurm.sh and the list of submissions that it reads; returns the script's path."""
    folder = root / FOLDER / assignment
    folder.mkdir(parents=True, exist_ok=True)
    listed, script = folder / "submissions.txt", folder / "slurm.sh"
    listed.write_text("".join(f"{path}\n" for path in notebooks))
    script.write_text(
        SCRIPT.format(
            assignment=assignment,
            count=len(notebooks),
            folder=folder,
            gpu="#SBATCH --gpus=1\n" if "--gpu-only" in options else "",
            root=shlex.quote(str(root)),
            python=shlex.quote(sys.executable),
            listed=shlex.quote(str(listed)),
            options="".join(f" {option}" for option in options),
        )
    )
    return script
