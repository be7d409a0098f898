"""A learner's hour in a real JupyterLab: chapters run, a wrong kernel is named, the right one gets its points.

FLASHKIT_SCREENSHOTS=docs/images keeps the README's picture.
"""

import os
import re
from pathlib import Path

import pytest

from flashkit.grading.cells import MARKER, graded_cells
from tests.browser.lab_page import FLAGS, ROOT, Notebook, copy_course, running_lab

pytestmark = pytest.mark.browser

LAB = "03_flash_forward/03_flash_forward.ipynb"
KERNELS = {name: MARKER.sub("", source) for name, source in graded_cells(ROOT / "solutions" / LAB).items()}
ROWS, TILE = KERNELS["kernel-03-rows"], KERNELS["kernel-03-tile"]


def changed(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1
    return source.replace(old, new)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    (folder / "settings").mkdir()
    course = copy_course(folder / "course")
    with running_lab(course, folder / "settings") as address:
        yield course, address


@pytest.fixture(scope="module")
def browser(browser_path):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_notebook(lab, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 1120})
    yield lambda name: Notebook(page, *lab, name)
    page.close()


def errors(notebook: Notebook) -> list[str]:
    return [o.ename for cell in notebook.code() for o in cell.outputs if o.output_type == "error"]


def keep(notebook: Notebook, name: str) -> None:
    """The page as it is, if pictures are wanted."""
    folder = os.environ.get("FLASHKIT_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        notebook.page.screenshot(path=Path(folder) / name)


@pytest.mark.parametrize("chapter", ["00_start_here", "03_flash_forward"])
def test_a_chapter_runs_in_the_page_without_an_error(open_notebook, chapter):
    notebook = open_notebook(f"notebooks/{chapter}.ipynb")
    notebook.run_all()
    assert errors(notebook) == []


def test_a_wrong_kernel_is_named_and_the_right_one_gets_its_points(open_notebook):
    notebook = open_notebook(f"work/{LAB}")
    notebook.run_all()
    assert errors(notebook) == []

    notebook.type("kernel-rows", changed(ROWS, "acc = alpha[:, None] * acc +", "acc = acc +"))
    report = notebook.run("grade-rows", "✗ 03.rows wrong")
    said = report.inner_text()
    assert "Your output is what you get when the old numerator is not rescaled by alpha" in said
    assert "0 of 25 points" in said and re.search(r"First seen in .*in row \d+ .* key tiles? \d", said), said
    keep(notebook, "named-mistake.png")

    notebook.type("kernel-rows", ROWS)
    assert "25 of 25 points" in notebook.run("grade-rows", "✓ 03.rows right").inner_text()


def test_a_kernel_out_of_bounds_and_an_endless_loop_leave_the_session_alive(open_notebook):
    notebook = open_notebook(f"work/{LAB}")
    notebook.run_all()
    counted = max(cell.execution_count for cell in notebook.code())

    notebook.type("kernel-tile", changed(TILE, "O_i, mask=rows[:, None] < N_q)", "O_i)"))
    said = notebook.run("grade-tile", "✗ 03.tile crashed").inner_text()
    assert "a store runs past the last query row" in said

    endless = changed(TILE, "    m = tl.max(S, 1)\n", "    while True:\n        m = tl.max(S, 1)\n")
    notebook.type("kernel-tile", endless)
    assert "is there a loop that never ends?" in notebook.run("grade-tile", "had not ended").inner_text()

    notebook.type("kernel-tile", TILE)
    notebook.run("grade-tile", "✓ 03.tile right")
    last = next(cell.execution_count for cell in notebook.code() if cell.id == "grade-tile")
    assert last == counted + 6  # the same session: its counter went on
