"""The cell extractor: what it takes out of a lab, what it leaves, what it says of notebooks that are none."""

import json
from pathlib import Path

import pytest
import torch

from flashkit.exercises.lab_cells import CellError, graded_cells, load, solution_source

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"
LAB = SOLUTIONS / "03_flash_forward" / "03_flash_forward.ipynb"
FUNCTIONS = {
    "03.tile": "attention_tile",
    "03.rows": "attention_rows",
    "03.causal": "attention_causal",
    "03.heads": "flash_forward",
}


def notebook(tmp_path, *cells):
    """A notebook of (grade id or None, source) code cells; a source may be a list of lines, as nbformat saves it."""
    made = [
        {"cell_type": "code", "source": source, "metadata": {"nbgrader": {"grade_id": grade_id}} if grade_id else {}}
        for grade_id, source in cells
    ]
    path = tmp_path / "lab.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "cells": made}))
    return path


def test_a_source_is_the_imports_then_the_kernel_without_markers(tmp_path):
    path = notebook(
        tmp_path,
        ("imports", ["import math\n", "import cmath"]),
        (None, "print('a cell of my own')"),
        ("kernel-x", "def f():\n    ### BEGIN SOLUTION\n    return math.pi\n    ### END SOLUTION"),
        ("x", "check(f)"),
    )
    assert solution_source(path, "x") == "import math\nimport cmath\n\n\ndef f():\n    return math.pi\n"


def test_the_first_of_two_cells_with_one_id_counts(tmp_path):
    path = notebook(tmp_path, ("imports", ""), ("kernel-x", "a = 1"), ("kernel-x", "a = 2"))
    assert graded_cells(path)["kernel-x"] == "a = 1"


def test_a_missing_cell_and_a_file_that_is_no_notebook_are_told(tmp_path):
    with pytest.raises(CellError, match="no cell with the grade id 'kernel-03-tile'; there are imports"):
        solution_source(notebook(tmp_path, ("imports", "")), "03.tile")
    for text in ("", "[]", "{}", '{"cells": [{}]}', '{"cells": [{"cell_type": "code", "metadata": null}]}'):
        (tmp_path / "bad.ipynb").write_text(text)
        with pytest.raises(CellError, match="bad.ipynb is no notebook"):
            solution_source(tmp_path / "bad.ipynb", "03.tile")


def test_code_that_defines_something_else_or_raises_is_told():
    with pytest.raises(CellError, match="defines no `add`"):
        load("def ad(): pass", "add")
    with pytest.raises(ZeroDivisionError):
        load("1 / 0", "add")


def test_two_loads_of_one_name_are_two_functions():
    one, two = load("def f():\n    return 1\n", "f"), load("def f():\n    return 2\n", "f")
    assert (one(), two()) == (1, 2)


@pytest.mark.parametrize(("exercise_id", "name"), FUNCTIONS.items())
def test_each_solution_loads_alone_and_runs(exercise_id, name):
    function = load(solution_source(LAB, exercise_id), name)
    x = torch.randn(5, 16)
    if exercise_id == "03.heads":
        o, lse = function(x[None, None], x[None, None], x[None, None], False, 0, 0.25, 16, 16)
        torch.testing.assert_close(lse[0, 0], torch.logsumexp(x @ x.T / 4, 1))
        torch.testing.assert_close(o[0, 0], torch.softmax(x @ x.T / 4, 1) @ x)
    else:
        seen = torch.ones(5, 5).tril() if exercise_id == "03.causal" else torch.ones(5, 5)
        scores = (x @ x.T / 4).masked_fill(seen == 0, float("-inf"))
        rest = (0, 16, 16) if exercise_id == "03.causal" else (16, 16)
        torch.testing.assert_close(function(x, x, x, *rest), torch.softmax(scores, 1) @ x)
