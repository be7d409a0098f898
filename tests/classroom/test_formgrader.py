"""A teacher's afternoon in a real browser: formgrader lists the class, grades one by its button, a feedback page reads.

FLASHKIT_SCREENSHOTS=folder keeps pictures of both pages.
"""

import json
import os
import re
from pathlib import Path

import pytest

from tests.browser.lab_page import FLAGS, copy_course, running_lab
from tests.classroom.classroom import CHECKS, LAB, Classroom
from tests.classroom.students import CLASS

pytestmark = [pytest.mark.classroom, pytest.mark.browser, pytest.mark.timeout(900)]
HANDED_IN = ("stub", "fault-strict")


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    room = Classroom(copy_course(tmp_path_factory.mktemp("course") / "class"))
    solutions = json.loads((room.folder / "solutions" / LAB / f"{LAB}.ipynb").read_text())
    for student in CLASS:
        if student.name in HANDED_IN:
            room.hand_in(student.name, student.make(room.released(), solutions))
    return room


@pytest.fixture
def page(browser_path):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(300_000)  # a busy machine needs minutes for what takes seconds
        yield page
        browser.close()


def keep(page, name: str) -> None:
    folder = os.environ.get("FLASHKIT_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


def test_formgrader_grades_one_by_its_button_and_the_feedback_names_the_mistake(room, page, tmp_path):
    with running_lab(room.folder, tmp_path, "--teach") as address:
        page.goto(address)  # the address that was printed: it signs the browser in
        page.goto(f"{re.match('http://[^/]+/', address)[0]}formgrader/manage_submissions/{LAB}")
        rows = page.locator("table tbody tr")
        rows.nth(len(HANDED_IN) - 1).wait_for()
        text = page.locator("table tbody").inner_text()
        assert all(name in text for name in HANDED_IN)
        row = rows.filter(has_text="fault-strict")
        row.locator(".autograde a").click()
        page.get_by_text("Success").first.wait_for()
        keep(page, "formgrader")
    scores = room.scores("fault-strict")
    assert [scores[check] for check in CHECKS] == [0.0] * 4 and scores["03-heads-gpu"] is None
    assert room.result("fault-strict")["cells"]["03-causal"]["mistake"] == "causal-strict"

    room.nbgrader("generate_feedback", LAB, "--student", "fault-strict")
    page.goto((room.folder / "feedback" / "fault-strict" / LAB / f"{LAB}.html").as_uri())
    report = page.locator(".flashkit-report").nth(2)
    report.scroll_into_view_if_needed()
    assert report.is_visible()
    shown = report.inner_text()
    assert shown.startswith("✗ 03.causal wrong") and "Your output is what you get when" in shown
    assert report.bounding_box()["width"] > 400
    keep(page, "feedback")
