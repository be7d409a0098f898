"""What the teacher's grader_config.py says, as one value that the grading modules hand on."""

from __future__ import annotations

import importlib.util
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flashkit.grading.sandbox import Limits

CONFIG = "grader_config.py"
GPU_CHOICES = ("required", "bonus", "off")
SHARES = ("right", "bytes", "compiles")
LIMITS = ("seconds_per_exercise", "seconds_per_cell", "memory_gib", "disk_mib", "processes")
FOLDERS = ("source", "release", "submitted", "autograded", "feedback")


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
    config = _said(path)
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


def _said(path: Path) -> types.ModuleType:
    """The config as a module whose values can be meant."""
    spec = importlib.util.spec_from_file_location("grader_config", path)
    config = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(config)
        shares, gpu, limits, folders = config.SHARES, config.GPU, config.LIMITS, config.FOLDERS
    except Exception as error:
        raise ValueError(f"{CONFIG} cannot be used: {type(error).__name__}: {error}") from error
    if gpu not in GPU_CHOICES:
        raise ValueError(f"{CONFIG}: GPU must be one of {', '.join(GPU_CHOICES)}, not {gpu!r}.")
    given = {"SHARES": shares, "LIMITS": limits, "FOLDERS": folders}
    if wrong := [name for name, value in given.items() if not isinstance(value, Mapping)]:
        raise ValueError(f"{CONFIG}: {', '.join(wrong)} must be a dict.")
    if not {"right"} <= set(shares) <= set(SHARES) or not _are_shares(shares.values()):
        raise ValueError(
            f"{CONFIG}: SHARES must be numbers for right, bytes and compiles that add up to 1, not {shares!r}."
        )
    if wrong := [name for name in LIMITS if not _is_number(limits.get(name)) or limits[name] <= 0]:
        raise ValueError(f"{CONFIG}: LIMITS needs a number above 0 for {', '.join(wrong)}.")
    if wrong := [name for name in FOLDERS if not isinstance(folders.get(name), str)]:
        raise ValueError(f"{CONFIG}: FOLDERS needs a text for {', '.join(wrong)}.")
    return config


def _are_shares(values: Iterable[object]) -> bool:
    numbers = list(values)
    return all(_is_number(n) and n >= 0 for n in numbers) and abs(sum(numbers) - 1) < 1e-6


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value < float("inf")
