"""What this machine lacks for a test: skipped and listed as *not run here*; with REQUIRE_ALL=1 a failure instead."""

import importlib.util
import os
import shutil
from collections import Counter

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers on two cores; read by torch when it is first imported
os.environ["FLASHKIT_PROGRESS"] = os.devnull + "/progress.json"  # a notebook run by a test is no learner's progress

import pytest

import flashkit  # noqa: F401  comes before any test's `import triton`, so that a CPU machine interprets

NOT_RUN = "not run here: "
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    """Path of an installed Chromium or Chrome, or None. Playwright's own download is not used."""
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


def lacks_browser() -> str | None:
    if not find_browser():
        return "no browser (Debian: apt-get install chromium)"
    if not importlib.util.find_spec("playwright"):
        return "no playwright (pip install -e '.[tests]')"
    return None


def lacks_sandbox() -> str | None:
    from flashkit.grading import sandbox

    return None if sandbox.available() else "no sandbox that works (Debian: apt-get install bubblewrap)"


def lacks_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


LACKS = {"browser": lacks_browser, "classroom": lacks_sandbox, "gpu": lacks_gpu}


@pytest.fixture(scope="session")
def browser_path() -> str:
    return find_browser()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("browser") or item.get_closest_marker("alone"):
            item.add_marker(pytest.mark.xdist_group("alone"))
        elif not item.get_closest_marker("xdist_group") and shares_a_fixture(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def shares_a_fixture(item) -> bool:
    """Uses what its module makes once, which a second worker would make once more, or at the same place."""
    made = item._fixtureinfo.name2fixturedefs.values()
    return any(fixture.scope == "module" for fixtures in made for fixture in fixtures)


def pytest_runtest_setup(item):
    for mark, lacks in LACKS.items():
        if item.get_closest_marker(mark) and (reason := lacks()):
            if mark != "gpu" and os.environ.get("REQUIRE_ALL") == "1":
                pytest.fail(f"REQUIRE_ALL=1, but this machine has {reason}", pytrace=False)
            pytest.skip(NOT_RUN + reason)


def pytest_terminal_summary(terminalreporter):
    missing = Counter(
        report.longrepr[2].removeprefix("Skipped: ").removeprefix(NOT_RUN)
        for report in terminalreporter.stats.get("skipped", [])
    )
    if missing:
        terminalreporter.section("not run here")
        for reason, count in sorted(missing.items()):
            terminalreporter.line(f"{count} test{'s' if count > 1 else ''}: {reason}")
