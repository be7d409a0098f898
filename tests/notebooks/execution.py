"""Runs a notebook top to bottom in a kernel of its own and gives back what it showed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
CELL_SECONDS = 300


@dataclass(frozen=True)
class Shown:
    """One cell's output: its stdout, its stderr, the value of its last line, and its displays as text."""

    stdout: str
    stderr: str
    value: str
    displays: tuple[str, ...]


def execute(path: Path, folder: Path) -> dict[str, Shown]:
    """What each code cell of a copy in ``folder`` shows, by cell id. Raises nbclient's CellExecutionError."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    ).execute(env=_environment())
    return {cell.id: _shown(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"}


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def _shown(outputs) -> Shown:
    streams = {"stdout": "", "stderr": ""}
    value, displays = "", []
    for output in outputs:
        if output.output_type == "stream":
            streams[output.name] += output.text
        elif output.output_type == "execute_result":
            value = output.data.get("text/plain", "")
        elif output.output_type == "display_data":
            displays.append(output.data.get("text/plain", ""))
    return Shown(streams["stdout"], streams["stderr"], value, tuple(displays))
