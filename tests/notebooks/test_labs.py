"""The labs: the release differs from the source only in the blanks; stubs get 0 points, solutions all of them."""

import re

import nbformat
import pytest

import grader_config
from flashkit import exercises
from flashkit.exercises.lab_cells import KERNEL, MARKER, graded_cells
from flashkit.grading.grade import cell_points
from tests.notebooks.execution import ROOT, execute

LABS = sorted(path.parent.name for path in (ROOT / "solutions").glob("*/*.ipynb"))
CODE_LINES, ANSWER_LINES = 25, 80
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
REGION = re.compile(
    r"^([ \t]*)(?:// )?### BEGIN SOLUTION\n.*?^[ \t]*(?:// )?### END SOLUTION$", re.MULTILINE | re.DOTALL
)


def read(folder: str, lab: str):
    return nbformat.read(ROOT / folder / lab / f"{lab}.ipynb", as_version=4)


def blanked(source: str) -> str:
    """A source cell as nbgrader releases it: each region becomes the stub, at the region's indentation."""

    def stub(match):
        return "\n".join(match[1] + line for line in STUB.splitlines())

    return REGION.sub(stub, source)


def graded(notebook) -> dict:
    return {c.id: c.metadata.nbgrader for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade")}


def exercise_id(nbgrader) -> str:
    return nbgrader.grade_id.replace("-", ".")


@pytest.mark.parametrize("lab", LABS)
def test_a_release_differs_from_its_source_only_in_the_blanks(lab):
    source, release = read("solutions", lab), read("labs", lab)
    assert [c.id for c in release.cells] == [c.id for c in source.cells]
    for ours, theirs in zip(source.cells, release.cells, strict=True):
        assert theirs.source == blanked(ours.source), ours.id
        assert (theirs.source != ours.source) == ours.metadata.get("nbgrader", {}).get("solution", False), ours.id


@pytest.mark.parametrize("lab", LABS)
def test_a_release_holds_no_answer_no_hidden_test_and_no_output(lab):
    text = (ROOT / "labs" / lab / f"{lab}.ipynb").read_text()
    assert "SOLUTION" not in text and "HIDDEN TEST" not in text
    for folder in ("labs", "solutions"):
        for cell in read(folder, lab).cells:
            assert not cell.get("outputs") and cell.get("execution_count") is None


@pytest.mark.parametrize("lab", LABS)
def test_every_blank_says_its_size_and_every_cell_of_the_frame_is_locked(lab):
    for cell in read("solutions", lab).cells:
        parts = re.split(r"(?:// )?### BEGIN SOLUTION", cell.source)[:-1]
        before = [part.rstrip().splitlines()[-1] for part in parts]
        assert all(re.search(r"(#|//) .*\d+ lines?\b", line) for line in before), (cell.id, before)
        if cell.cell_type == "code":
            nbgrader = cell.metadata.nbgrader
            assert nbgrader.locked != nbgrader.solution and re.fullmatch(r"[\w-]+", nbgrader.grade_id)


@pytest.mark.parametrize("lab", LABS)
def test_code_cells_are_short_unless_they_hold_an_answer(lab):
    """An answer, or a kernel's part, is one cell: a Triton kernel with its launch, a CUDA text. No mark is seen."""
    for cell in read("solutions", lab).cells:
        if cell.cell_type == "code":
            kernel = cell.metadata.nbgrader.grade_id.startswith(KERNEL) or "@gluon.jit" in cell.source
            limit = ANSWER_LINES if kernel else CODE_LINES
            assert len(MARKER.sub("", cell.source).splitlines()) <= limit, cell.id


def test_the_forward_of_lab_04_is_the_solution_of_lab_03():
    """Lab 04 begins with a forward, and no lab depends on another's file; so it holds a copy, kept in step here."""
    ours = graded_cells(ROOT / "solutions/03_flash_forward/03_flash_forward.ipynb")["kernel-03-heads"]
    copy = graded_cells(ROOT / "solutions/04_backward/04_backward.ipynb")["kernel-04-forward"]
    task, _, copied = MARKER.sub("", copy).partition("\n")
    assert task.startswith("# Your kernel and your `flash_forward` of 03.heads")
    assert copied == MARKER.sub("", ours)


@pytest.mark.parametrize("lab", LABS)
def test_points_are_the_exercises_and_a_gpu_cell_has_those_of_the_class(lab):
    for nbgrader in graded(read("labs", lab)).values():
        own = exercises.points(exercise_id(nbgrader))
        assert own > 0 and nbgrader.points == cell_points(nbgrader.grade_id, grader_config.GPU)
        assert nbgrader.points == own or nbgrader.grade_id.endswith("-gpu")


@pytest.mark.parametrize("lab", LABS)
def test_the_text_states_each_exercises_own_numbers_and_signature(lab):
    texts = {c.id: c.source for c in read("solutions", lab).cells}
    for ident, nbgrader in graded(read("solutions", lab)).items():
        if exercise_id(nbgrader) in exercises.EXERCISES:
            exercise, text = exercises.get(exercise_id(nbgrader)), texts[ident.replace("grade-", "task-")]
            assert f"{exercise.minutes} minutes · {exercise.points} points" in text
            assert f"{'★' * exercise.difficulty} ·" in text
            assert exercise.signature.split("    #")[0] in text
            assert text.count("<details>") == len(exercise.hints)


FAST = ("00_start_here", "02_online_softmax")  # Triton, plain numbers and CUDA C++ are in them


@pytest.mark.parametrize("lab", [lab if lab in FAST else pytest.param(lab, marks=pytest.mark.slow) for lab in LABS])
def test_the_stub_gets_nothing_and_is_told_why(lab, tmp_path):
    shown = execute(ROOT / "labs" / lab / f"{lab}.ipynb", tmp_path)
    for ident, nbgrader in graded(read("labs", lab)).items():
        assert float(shown[ident].value) == 0.0
        if not nbgrader.grade_id.endswith("-gpu"):
            assert "This blank is not filled in yet" in shown[ident].displays[0]
    assert not any(cell.stderr for cell in shown.values())
    for ident in {"watch", "toy-compare"} & set(shown):
        assert shown[ident].stdout.startswith("Fill in"), ident


@pytest.mark.parametrize("lab", LABS)
def test_the_solution_gets_every_point_that_a_cpu_can_judge(lab, tmp_path):
    shown = execute(ROOT / "solutions" / lab / f"{lab}.ipynb", tmp_path)
    for ident, nbgrader in graded(read("labs", lab)).items():
        pending = nbgrader.grade_id.endswith("-gpu")
        own = exercises.points(exercise_id(nbgrader))
        assert float(shown[ident].value) == (0.0 if pending else own), shown[ident].displays
        assert not pending or "pending" in shown[ident].displays[0]
    assert not any(cell.stderr for cell in shown.values())
    if "toy-compare" in shown:
        check_training(shown["toy-compare"].stdout)


def check_training(said: str) -> None:
    """Two layers trained for 50 steps with the solution's attention and with SDPA: the losses agree, and fall."""
    (first, last), (first_sdpa, last_sdpa) = re.findall(r"step 1: ([\d.]+) +step 50: ([\d.]+)", said)
    assert float(last) < 0.8 * float(first) and float(last_sdpa) < 0.8 * float(first_sdpa), said
    assert float(re.search(r"largest difference in any step: (\S+)", said)[1]) < 1e-4, said
