"""What the teacher's grader_config.py says, as one value that the grading modules hand on."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flashkit.grading.sandbox import Limits

CONFIG = "grader_config.py"
GPU_CHOICES = ("required", "bonus", "off")


@dataclass(frozen=True)
class Settings:
    """shares: of an exercise's points, by part; gpu: what GPU cells count; limits: of one submission."""

    shares: Mapping[str, float]
    gpu: str
    limits: Limits
    seconds_per_exercise: float
    seconds_per_cell: float
    folders: Mapping[str, str]


def load(folder: Path) -> Settings:
    """The settings of a class's folder. Raises ValueError, in one line, for what cannot be meant."""
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"There is no {CONFIG} in {folder}: copy the course's there, beside nbgrader_config.py.")
    spec = importlib.util.spec_from_file_location("grader_config", path)
    config = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(config)
    if config.GPU not in GPU_CHOICES:
        raise ValueError(f"{CONFIG}: GPU must be one of {', '.join(GPU_CHOICES)}, not {config.GPU!r}.")
    given = config.LIMITS
    limits = Limits(int(given["memory_gib"] * 2**30), int(given["disk_mib"] * 2**20), int(given["processes"]))
    return Settings(
        shares=config.SHARES,
        gpu=config.GPU,
        limits=limits,
        seconds_per_exercise=float(given["seconds_per_exercise"]),
        seconds_per_cell=float(given["seconds_per_cell"]),
        folders=config.FOLDERS,
    )
