"""One JupyterLab for all browser tests: a process of its own, which each module drives with its own browser."""

import pytest

from tests.browser.lab_page import copy_course, running_lab


@pytest.fixture(scope="session")
def course(tmp_path_factory):
    """A copy of the course, and the address of a JupyterLab that serves it."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "settings").mkdir()
    copied = copy_course(folder / "course")
    with running_lab(copied, folder / "settings") as address:
        yield copied, address
