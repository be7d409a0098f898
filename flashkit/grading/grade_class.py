"""Grades a class on several workers: `python -m flashkit.grading.grade_class ASSIGNMENT`, in the class's folder.

Dask hands out submissions; each is one `grade_one` process, so that no student's code runs in a worker and a worker
that dies costs a retry. Afterwards one `nbgrader autograde` reads the results into the gradebook, as its only writer.
Results that are there are kept, so an interrupted run goes on where it was. ``--gpu-only``, on a GPU machine, judges
what waits for a GPU and keeps the rest. ``--slurm`` starts nothing and writes a job script instead.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from flashkit.grading import settings, slurm

SECONDS = 1800  # one submission at the very most; its own limits end it long before
TRIES = 2  # of what fails for the machine's reasons, never the student's


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="flashkit.grading.grade_class", description=__doc__.partition("\n")[0])
    parser.add_argument("assignment")
    parser.add_argument("--workers", type=int, help="processes on this machine; default: its cores, or 1 on a GPU")
    parser.add_argument("--scheduler", help="address of a Dask scheduler whose workers see this folder")
    parser.add_argument("--gpu-only", action="store_true", help="judge only what waits for a GPU, where there is one")
    parser.add_argument("--slurm", action="store_true", help="write a Slurm array script instead of running")
    chosen = parser.parse_args(arguments)
    root = Path.cwd()
    try:
        folders = settings.load(root).folders
    except ValueError as error:
        print(f"grade-class: {error}", file=sys.stderr)
        return 1
    submitted = folders["submitted"]
    notebooks = handed_in(root, folders, chosen.assignment)
    if not notebooks:
        print(f"grade-class: nothing in {submitted}/*/{chosen.assignment}/.", file=sys.stderr)
        return 1
    options = ["--gpu-only"] if chosen.gpu_only else []
    if chosen.slurm:
        script = slurm.write(root, chosen.assignment, notebooks, options)
        print(f"grade-class: sbatch {script.relative_to(root)}; then, when all have ended, {_merge(chosen.assignment)}")
        return 0
    workers = chosen.workers or (1 if chosen.gpu_only else os.cpu_count() or 1)  # two would disturb each other's times
    failed = run(notebooks, root, workers, chosen.scheduler, options)
    for path, said in failed.items():
        print(f"grade-class: no result for {path}: {said}", file=sys.stderr)
    if chosen.gpu_only:  # this machine's versions may be others, which would make every result a stale one
        if len(failed) < len(notebooks):
            print(f"grade-class: now, where the gradebook is, {_merge(chosen.assignment)}")
        return bool(failed)
    merged = subprocess.run([sys.executable, "-m", "nbgrader", "autograde", chosen.assignment, "--force"], cwd=root)
    return merged.returncode or bool(failed)


def handed_in(root: Path, folders: Mapping[str, str], assignment: str) -> list[Path]:
    """The notebooks to grade. What has another name than the release's, or one that is no line, is named and left out.

    A line break in a name would shift all others in a Slurm array's list.
    """
    released = {path.name for path in root.glob(f"{folders['release']}/{assignment}/*.ipynb")}
    notebooks = sorted(root.glob(f"{folders['submitted']}/*/{assignment}/*.ipynb"))
    left_out = [
        p for p in notebooks if released and p.name not in released or not str(p.relative_to(root)).isprintable()
    ]
    for path in left_out:
        print(f"grade-class: left out, rename it if it is to be graded: {str(path)!r}", file=sys.stderr)
    return [path for path in notebooks if path not in left_out]


def _merge(assignment: str) -> str:
    return f"`nbgrader autograde {assignment} --force`"


def run(
    notebooks: list[Path], root: Path, workers: int, scheduler: str | None, options: Sequence[str] = ()
) -> dict[str, str]:
    """Grades the notebooks; returns what the machine failed at, path -> its last words."""
    from distributed import Client, LocalCluster, as_completed

    cluster = scheduler or LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    failed = {}
    with Client(cluster) as client:
        jobs = {
            client.submit(one, str(path), str(root), *options, pure=False, retries=TRIES): path for path in notebooks
        }
        for number, job in enumerate(as_completed(list(jobs)), 1):
            done = job.status == "finished"
            told = f"{number} of {len(jobs)}: {jobs[job].parents[1].name} {'done' if done else 'FAILED'}"
            print(f"grade-class: {told}", flush=True)
            if not done:
                failed[str(jobs[job])] = str(job.exception())
    if not scheduler:
        cluster.close()
    return failed


def one(path: str, root: str, *options: str) -> None:
    """Runs in a worker: one submission in a process of its own. Raises RuntimeError where there is no result."""
    command = [sys.executable, "-m", "flashkit.grading.grade_one", path, *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or f"exit status {done.returncode}")[-500:])


if __name__ == "__main__":
    sys.exit(main())
