"""Whatever a submission's file holds, it becomes the released notebook with the student's code in it."""

import copy
import html
import json
import random
import re

import nbformat
import pytest
from nbconvert import HTMLExporter

from flashkit.grading.sanitise import MISSING, exercise_id, rebuild, without_magics


def code(source, id=None, **nbgrader):
    metadata = {"nbgrader": nbgrader} if nbgrader else {}
    cell = {"cell_type": "code", "metadata": metadata, "source": source, "outputs": [], "execution_count": None}
    return {**cell, "id": id or f"id-{abs(hash(source)) % 10**6}"}


SKELETON = {
    "cells": [
        {"cell_type": "markdown", "id": "title", "metadata": {}, "source": "# Lab"},
        code("import torch", "imports", grade_id="imports", locked=True, grade=False, solution=False),
        code("raise NotImplementedError()", "kernel-a", grade_id="kernel-a", solution=True, grade=False, locked=False),
        code("check('a')", "grade-a", grade_id="a", grade=True, locked=True, solution=False, points=5),
        code("raise NotImplementedError()", "kernel-b", grade_id="kernel-b", solution=True, grade=False, locked=False),
        code("check('b')", "grade-b", grade_id="b", grade=True, locked=True, solution=False, points=5),
    ],
    "metadata": {"kernelspec": {"name": "python3"}},
}


def submitted(change=lambda notebook: None):
    notebook = copy.deepcopy(SKELETON)
    notebook["cells"][2]["source"] = "def a(): return 1"
    notebook["cells"][4]["source"] = "def b(): return 2"
    change(notebook)
    return rebuild(json.dumps(notebook).encode(), SKELETON)


def sources(submission, before=None):
    return [cell.source for cell in submission.code[:before]]


def test_an_honest_submission_is_the_release_with_its_code():
    submission = submitted()
    assert sources(submission) == ["import torch", "def a(): return 1", "def b(): return 2"]
    assert submission.upto == {"a": 2, "b": 3} and not submission.notes
    assert [c["metadata"] for c in submission.notebook["cells"]] == [c["metadata"] for c in SKELETON["cells"]]


def test_rebuilding_what_is_rebuilt_changes_nothing():
    once = submitted(lambda notebook: notebook["cells"].insert(2, code("%ls\nhelp = 1")))
    twice = rebuild(json.dumps(once.notebook).encode(), once.notebook)
    assert (twice.code, twice.upto, twice.notebook["cells"]) == (once.code, once.upto, once.notebook["cells"])


def test_own_cells_run_where_they_stand():
    submission = submitted(lambda notebook: notebook["cells"].insert(2, code("helper = 1")))
    assert sources(submission, submission.upto["a"]) == ["import torch", "helper = 1", "def a(): return 1"]


def test_a_locked_cell_is_the_releases_and_what_stood_there_runs_after_it():
    submission = submitted(lambda notebook: notebook["cells"][1].update(source="import math"))
    assert sources(submission, 2) == ["import torch", "import math"]


def test_a_changed_check_is_replaced_and_never_runs():
    submission = submitted(lambda notebook: notebook["cells"][3].update(source="report.points = 5"))
    assert "report.points" not in json.dumps(submission.notebook)
    assert submission.notes == ["The check of a had been changed; the released one counts."]


def test_the_later_of_two_copies_is_what_the_check_sees():
    second = code("def a(): return 'second'", grade_id="kernel-a", solution=True)
    submission = submitted(lambda notebook: notebook["cells"].insert(3, second))
    assert sources(submission, submission.upto["a"])[-1] == "def a(): return 'second'"
    ids = [c["metadata"].get("nbgrader", {}).get("grade_id") for c in submission.notebook["cells"]]
    assert ids.count("kernel-a") == 1


def test_a_renamed_cell_is_known_by_its_cell_id():
    submission = submitted(lambda notebook: notebook["cells"][2]["metadata"]["nbgrader"].update(grade_id="mine"))
    assert sources(submission, submission.upto["a"]) == ["import torch", "def a(): return 1"]


def test_deleted_cells_come_back_and_a_deleted_blank_stays_empty():
    def change(notebook):
        del notebook["cells"][1:4]

    submission = submitted(change)
    assert sources(submission) == ["import torch", MISSING, "def b(): return 2"]
    assert submission.upto == {"a": 2, "b": 3} and len(submission.notes) == 3


def test_a_check_above_its_kernel_still_sees_it():
    def change(notebook):
        notebook["cells"].insert(2, notebook["cells"].pop(3))

    submission = submitted(change)
    assert sources(submission, submission.upto["a"])[-1] == "def a(): return 1"


@pytest.mark.parametrize(
    "text",
    [
        "<img onerror=alert(1)>",
        "[mine](javascript:alert(1))",
        "[mine][1]\n\n[1]: javascript:alert(1)",
        "[mine](&#106;avascript:alert(1))",
        "$\\href{javascript:alert(1)}{x}$",
        "![image.png](attachment:image.png)",  # a pasted picture: nbconvert refuses a page that lacks it
        "```\n```\n````\n<img onerror=alert(1)>\n[mine](javascript:alert(1))",
    ],
)
def test_a_students_own_text_is_shown_as_typed(text):
    own = {"cell_type": "markdown", "metadata": {}, "source": text}
    notebook = {**submitted(lambda notebook: notebook["cells"].append(own)).notebook, "metadata": {}}
    page, _ = HTMLExporter().from_notebook_node(nbformat.from_dict(notebook))
    (shown,) = re.findall(
        r'<div class="highlight"><pre>((?:(?!</pre>).)*(?:alert|image)(?:(?!</pre>).)*)</pre>', page, re.S
    )
    assert html.unescape(re.sub(r"</?span[^>]*>", "", shown)).strip() == text
    body = page.partition("<body")[2]
    assert "<img" not in body and not re.search(r"href=.(java|&#)", body)


@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[]", b"{", b'{"cells": 3}', b'{"cells": [1, null, {}]}', b"\xff\xfe\x00", b"[" * 200_000, b"{}"],
)
def test_what_is_no_notebook_gives_the_release_and_a_note(content):
    submission = rebuild(content, SKELETON)
    assert set(submission.upto) == {"a", "b"} and submission.notes


@pytest.mark.parametrize("seed", range(200))
def test_random_damage_stops_nothing(seed):
    rng = random.Random(seed)
    values = [None, 3, "", "x", [], {}, [None], {"nbgrader": None}, {"nbgrader": {"grade_id": [1]}}, True, 1e308]

    def change(notebook):
        for _ in range(rng.randint(1, 6)):
            cells = [cell for cell in notebook["cells"] if isinstance(cell, dict)]
            choice = rng.choice(["field", "drop", "copy", "value", "swap"])
            if choice == "field" and cells:
                rng.choice(cells)[rng.choice(["source", "metadata", "cell_type", "id", "outputs"])] = rng.choice(values)
            elif choice == "drop" and notebook["cells"]:
                notebook["cells"].pop(rng.randrange(len(notebook["cells"])))
            elif choice == "copy" and cells:
                notebook["cells"].append(copy.deepcopy(rng.choice(cells)))
            elif choice == "value":
                notebook["cells"].append(rng.choice(values))
            else:
                rng.shuffle(notebook["cells"])

    submission = submitted(change)
    graded = [c["metadata"]["nbgrader"] for c in submission.notebook["cells"] if c["metadata"].get("nbgrader")]
    assert sorted(g["grade_id"] for g in graded) == ["a", "b", "imports", "kernel-a", "kernel-b"]
    assert len({c["id"] for c in submission.notebook["cells"]}) == len(submission.notebook["cells"])
    assert set(submission.upto) == {"a", "b"}


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("x = (1\n% 2)", "x = (1\n% 2)"),
        ("s = '''\n!ls\n'''", "s = '''\n!ls\n'''"),
        ("%time x = 1\ny = 2", "pass  # a magic was removed here\ny = 2"),
        ("if x:\n    !ls\nz = 3", "if x:\n    pass  # a magic was removed here\nz = 3"),
        ("files = !ls", "files = None  # a magic was removed here"),
        ("help?", "pass  # a magic was removed here"),
        ("%%time\nx = 1", "# a magic was removed here\nx = 1"),
        ("%%bash\nrm -rf .", "# This cell was removed before grading: it held no Python but the magic %%bash."),
    ],
)
def test_magics_go_and_python_stays(source, kept):
    assert without_magics(source) == kept


def test_a_grade_id_names_its_exercise():
    assert exercise_id("03-heads-gpu") == "03.heads.gpu"
