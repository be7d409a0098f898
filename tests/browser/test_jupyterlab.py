"""A learner's hour in a real JupyterLab: chapters run, a wrong kernel is named, the right one gets its points.

FLASHKIT_SCREENSHOTS=docs/images keeps the README's picture.
"""

import os
import re
from pathlib import Path

import pytest

from flashkit.exercises.lab_cells import MARKER, graded_cells
from tests.browser.lab_page import FLAGS, ROOT, Notebook

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

LAB = "03_flash_forward/03_flash_forward.ipynb"
KERNELS = {name: MARKER.sub("", source) for name, source in graded_cells(ROOT / "solutions" / LAB).items()}
ROWS, TILE = KERNELS["kernel-03-rows"], KERNELS["kernel-03-tile"]


def changed(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1
    return source.replace(old, new)


@pytest.fixture(scope="module")
def browser(browser_path):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def open_notebook(course, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 1120})
    yield lambda name: Notebook(page, *course, name)
    page.close()


@pytest.fixture(scope="module")
def own_lab(open_notebook):
    """The learner's copy of lab 03, run from top to bottom: the blanks say that they are blank."""
    notebook = open_notebook(f"work/{LAB}")
    notebook.run_all()
    assert errors(notebook) == []
    return notebook


def errors(notebook: Notebook) -> list[str]:
    return [o.ename for cell in notebook.code() for o in cell.outputs if o.output_type == "error"]


def keep(notebook: Notebook, name: str) -> None:
    """The page as it is, if pictures are wanted."""
    folder = os.environ.get("FLASHKIT_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        notebook.page.screenshot(path=Path(folder) / name)


@pytest.mark.parametrize("chapter", ["00_start_here", pytest.param("03_flash_forward", marks=pytest.mark.slow)])
def test_a_chapter_runs_in_the_page_without_an_error(open_notebook, chapter):
    notebook = open_notebook(f"notebooks/{chapter}.ipynb")
    notebook.run_all()
    assert errors(notebook) == []


def test_a_wrong_kernel_is_named_and_the_right_one_gets_its_points(own_lab):
    notebook = own_lab
    notebook.type("kernel-rows", changed(ROWS, "acc = alpha[:, None] * acc +", "acc = acc +"))
    report = notebook.run("grade-rows", "✗ 03.rows wrong")
    said = report.inner_text()
    assert "Your output is what you get when the old numerator is not rescaled by alpha" in said
    assert "0 of 25 points" in said and re.search(r"First seen in .*in row \d+ .* key tiles? \d", said), said
    keep(notebook, "named-mistake.png")

    notebook.type("kernel-rows", ROWS)
    assert "25 of 25 points" in notebook.run("grade-rows", "✓ 03.rows right").inner_text()


ENDLESS = changed(TILE, "    m = tl.max(S, 1)\n", "    while True:\n        m = tl.max(S, 1)\n")


@pytest.mark.parametrize(
    ("kernel", "headline", "said"),
    [
        (changed(TILE, "O_i, mask=rows[:, None] < N_q)", "O_i)"), "✗ 03.tile crashed", "runs past the last query row"),
        pytest.param(ENDLESS, "had not ended", "is there a loop that never ends?", marks=pytest.mark.slow),
    ],
    ids=["out of bounds", "endless"],
)
def test_a_kernel_that_crashes_leaves_the_session_alive(own_lab, kernel, headline, said):
    notebook = own_lab
    counted = max(cell.execution_count for cell in notebook.code())
    notebook.type("kernel-tile", kernel)
    report = notebook.run("grade-tile", headline)
    assert said in report.inner_text()
    assert report.locator("pre").first.evaluate("line => getComputedStyle(line).wordBreak") == "normal"

    notebook.type("kernel-tile", TILE)
    notebook.run("grade-tile", "✓ 03.tile right")
    last = next(cell.execution_count for cell in notebook.code() if cell.id == "grade-tile")
    assert last == counted + 4  # the same session: its counter went on
