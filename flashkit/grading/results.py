"""What grading one submission gave, as a JSON file that gradebook, feedback and a second run read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA = 1
FOLDER = "results"  # of a class: results/<assignment>/<student>/<notebook>.json, for the teacher's eyes only


def result_path(root: Path, assignment: str, student: str, notebook: str) -> Path:
    return Path(root) / FOLDER / assignment / student / f"{notebook}.json"


def clamped(value: float, most: float = 1.0) -> float:
    """A plain float between 0 and ``most``; 0 for what is no number."""
    value = float(value)
    return min(max(value, 0.0), float(most)) if value == value else 0.0


def read(path: Path) -> dict[str, Any] | None:
    """A result, or None where there is none that can be read."""
    try:
        result = json.loads(path.read_text())
        return result if result["schema"] == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(path: Path, result: Mapping[str, Any]) -> None:
    """All or nothing, readable by the grader only, since it holds seeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(result, file, indent=1)
    os.replace(scratch, path)
