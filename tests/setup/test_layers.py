"""Imports inside the course point one way: learners get the course without its grading part, a sandbox without more."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ABOVE = {  # what each part may not import, anywhere in its files
    "reference": ("flashkit",),
    "flashkit/instruments": ("flashkit.exercises", "flashkit.check", "flashkit.grading"),
    "flashkit/runtime": ("reference", "flashkit.exercises", "flashkit.check", "flashkit.grading"),
    "flashkit/exercises": ("flashkit.check", "flashkit.grading"),
    "flashkit/check": ("flashkit.grading",),
    "flashkit/figures": ("flashkit.grading",),
    "flashkit/predict": ("flashkit.grading",),
}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("part", ABOVE)
def test_no_import_points_upwards(part):
    files = sorted((ROOT / part).rglob("*.py"))
    assert files
    up = [
        (path.name, name)
        for path in files
        for name in imported(path)
        if f"{name}.".startswith(tuple(f"{a}." for a in ABOVE[part]))
    ]
    assert not up
