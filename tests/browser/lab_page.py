"""A JupyterLab as `make lab` starts it, on a copy of the course, and the little of its page that the tests drive."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = (
    *(".git", ".venv", ".tritons", "work", "dist", "__pycache__"),
    *(".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"),
)
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
RUN_SECONDS = 240  # at most; a busy machine needs minutes for what takes seconds
START_SECONDS = 240


def copy_course(to: Path) -> Path:
    """A copy of the course, so that nobody's work/ and settings are touched."""
    return Path(shutil.copytree(ROOT, to, ignore=shutil.ignore_patterns(*NOT_COPIED)))


@contextlib.contextmanager
def running_lab(course: Path, settings: Path, *words: str) -> Iterator[str]:
    """Starts `tools.start_lab` with `words` in the copy, on a free port; gives the page's address with its token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folders = {f"JUPYTER_{name}_DIR": str(settings / name.lower()) for name in ("CONFIG", "RUNTIME", "DATA")}
    folders |= {f"JUPYTERLAB_{name}_DIR": str(settings / name.lower()) for name in ("SETTINGS", "WORKSPACES")}
    environment = {
        **os.environ,
        **folders,
        "IPYTHONDIR": str(settings / "ipython"),
        "JUPYTER_TOKEN": secrets.token_hex(16),
        "PYTHONPATH": str(course),
    }
    options = ["--no-browser", f"--port={port}", "--ServerApp.port_retries=0", "--LabApp.expose_app_in_browser=True"]
    command = [sys.executable, "-m", "tools.start_lab", *words, *options]
    log = settings / "lab.log"
    with log.open("w") as stream:
        server = subprocess.Popen(command, cwd=course, env=environment, stdout=stream, stderr=subprocess.STDOUT)
    try:
        yield _address(server, log)
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def _address(server: subprocess.Popen, log: Path) -> str:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if match := re.search(r"http://\S+/lab/tree/\S+\?token=\w+", log.read_text()):
            return match[0]
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"make lab gave no address:\n{log.read_text()}")


class Notebook:
    """One notebook open in the page; cells are reached as a reader does, by the keyboard."""

    def __init__(self, page, course: Path, address: str, name: str):
        self.page, self.title = page, name
        page.set_default_timeout(RUN_SECONDS * 1000)
        self.order = [cell.id for cell in nbformat.read(course / name, as_version=4).cells]
        page.goto(re.sub(r"/lab/tree/[^?]+\?", f"/lab/tree/{name}?reset&", address))  # reset: not the last test's tabs
        self.panel = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        self.panel.locator(".jp-Cell").first.wait_for()
        self._wait_idle()

    def _wait_idle(self) -> None:
        """Until the kernel is connected and rests; a cell run before that makes JupyterLab ask for a kernel."""
        kernel = "window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel"
        self.page.wait_for_function(f"() => {kernel}?.connectionStatus === 'connected' && {kernel}?.status === 'idle'")

    def run_all(self) -> None:
        """Run > Run All Cells, until every code cell has its number."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        until = time.monotonic() + RUN_SECONDS
        while time.monotonic() < until:
            if all(cell.execution_count for cell in self.code()):
                return
            self.page.wait_for_timeout(500)
        raise AssertionError(f"not run through after {RUN_SECONDS} s: {self.title}")

    def code(self) -> list:
        """The code cells as the page holds them, outputs and numbers included."""
        model = self.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.model.toJSON()")
        return [cell for cell in nbformat.from_dict(model).cells if cell.cell_type == "code"]

    def go_to(self, ident: str) -> None:
        """Select a cell: to the top, then down."""
        number = self.order.index(ident)
        self.panel.locator(".jp-Notebook").focus()
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Control+Home")
        for _ in range(60):
            self.page.keyboard.press("ArrowUp")
        for _ in range(number):
            self.page.keyboard.press("ArrowDown")

    def type(self, ident: str, source: str) -> None:
        """Replace a cell's source and run the cell."""
        self.go_to(ident)
        self.page.keyboard.press("Enter")
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(source)
        self.page.keyboard.press("Control+Enter")
        self._wait_idle()

    def run(self, ident: str, expect: str):
        """Run a cell and give its report once it says ``expect``."""
        self.go_to(ident)
        self.page.keyboard.press("Control+Enter")
        report = self.panel.locator(".jp-Cell.jp-mod-active .flashkit-report", has_text=expect)
        report.wait_for()
        self._wait_idle()
        return report
