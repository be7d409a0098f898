"""Starts JupyterLab on the first notebook and prints its address. With --teach, nbgrader's formgrader is there too."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from tools.lab_copies import copy_labs

ROOT = Path(__file__).resolve().parent.parent
FIRST_PAGE = "notebooks/00_start_here.ipynb"
START_SECONDS = 180


def main(arguments: list[str]) -> int:
    teach = "--teach" in arguments
    arguments = [argument for argument in arguments if argument != "--teach"]
    if not teach:
        try:
            for sentence in copy_labs(ROOT / "labs", ROOT / "work"):
                print(f"lab: {sentence}")
        except OSError as error:
            print(f"lab: work/ cannot be written ({error}); your copies of the labs go there.", file=sys.stderr)
            return 1
    return serve(command(arguments), environment(teach))


def command(arguments: list[str]) -> list[str]:
    as_root = ["--allow-root"] if os.geteuid() == 0 else []  # a container's usual user
    page = [f"--ServerApp.root_dir={ROOT}", f"--LabApp.default_url=/lab/tree/{FIRST_PAGE}"]  # a file would be the root
    return [sys.executable, "-m", "jupyterlab", "--log-level=WARN", *page, *as_root, *arguments]


def environment(teach: bool) -> dict[str, str]:
    """A token of our own, so that the address can be printed; for learners, our Jupyter settings before theirs."""
    settings = dict(os.environ)
    settings.setdefault("JUPYTER_TOKEN", secrets.token_hex(16))
    if not teach:
        paths = [str(ROOT / "tools" / "jupyter"), os.environ.get("JUPYTER_CONFIG_PATH", "")]
        settings["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, paths))
    return settings


def serve(command: list[str], environment: dict[str, str]) -> int:
    """Runs the server until it ends. Ctrl-C goes to JupyterLab, which asks before it stops."""
    server = subprocess.Popen(command, cwd=ROOT, env=environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    address = wait_for_address(server)
    if address:
        page = f"{address}lab/tree/{FIRST_PAGE}?token={environment['JUPYTER_TOKEN']}"
        print(f"lab: JupyterLab is at\n  {page}\nlab: stop it with Ctrl-C.", flush=True)
    return server.wait()


def wait_for_address(server: subprocess.Popen) -> str | None:
    """The base URL from the file that a running Jupyter server writes; None when it ended or took too long."""
    from jupyter_core.paths import jupyter_runtime_dir

    path = Path(jupyter_runtime_dir()) / f"jpserver-{server.pid}.json"
    for _ in range(START_SECONDS * 10):
        if server.poll() is not None:
            return None
        try:
            return json.loads(path.read_text())["url"]
        except (OSError, ValueError):
            time.sleep(0.1)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
