"""A sandbox that holds this machine's GPUs: no network, a read-only system, the course, and nothing of the class.

The course's own kernels are in it, since a kernel is timed beside them in one process. What is handed in, graded and
secret is not, and neither are homes. Where bubblewrap is missing, a plain child runs instead, and a warning says so.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from flashkit.grading.results import FOLDER as RESULTS
from flashkit.grading.sandbox import PACKAGE, Limits, available, end, environment, no_new_namespaces, too_much
from flashkit.grading.sandbox import package_folders as packages
from flashkit.grading.seeds import FILE as SEED

LOOK_SECONDS = 0.1
MOST_FILES, DEEPEST = 4000, 30
FULL = "It wrote too many files, or too large ones."
HOST_MEMORY = 4  # times the memory limit: CUDA and its compilers take GiB before any kernel runs
COURSE = PACKAGE.parent
OF_A_CLASS = ("submitted", "downloaded", "autograded", "feedback", "exchange", RESULTS, SEED, "gradebook.db")
KEPT = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


def command(inside: list[str], folder: Path, root: Path, disk: int = Limits.disk) -> list[str]:
    """How to start ``inside``, which may write ``folder`` only; ``root`` is the class's folder, which it cannot see.

    What is hidden has room for ``disk`` bytes each, since it lies in memory.
    """
    if not available():
        return inside
    words = [
        *("bwrap", "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"),
        *no_new_namespaces(),
        *("--die-with-parent", "--new-session", "--clearenv"),
        *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
    ]
    for device in sorted(Path("/dev").glob("nvidia*")):
        words += ["--dev-bind", str(device), str(device)]
    room = ["--size", str(disk), "--tmpfs"]
    for path, hidden in _places(root):
        if hidden:
            words += ["--ro-bind", os.devnull, path] if os.path.isfile(path) else [*room, path]
        else:
            words += ["--ro-bind", path, path]
    words += ["--bind", str(folder), str(folder), "--chdir", str(folder)]
    for name, value in surroundings(folder).items():
        words += ["--setenv", name, value]
    return [*words, *inside]


def _places(root: Path) -> list[tuple[str, bool]]:
    """(path, hidden) from the outside in: what lies in a hidden folder and is needed all the same is shown again."""
    own = {root} if root.resolve() != COURSE else set()
    hidden = {Path("/tmp"), Path.home(), *own, *(base / name for base in (root, COURSE) for name in OF_A_CLASS)}
    shown = {COURSE, Path(sys.prefix), Path(sys.base_prefix), *map(Path, packages())}
    found = {str(path): False for path in shown} | {str(path): True for path in hidden - {Path("/")} if path.exists()}
    return sorted(found.items(), key=lambda entry: (entry[0].rstrip("/").count("/"), entry[0]))


def surroundings(folder: Path) -> dict[str, str]:
    """The environment inside: nothing of the grader's own but where CUDA lies."""
    kept = {name: value for name in KEPT if (value := os.environ.get(name))}
    return {**environment(str(folder)), "PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(COURSE), **kept}


def run(inside: list[str], folder: Path, root: Path, limits: Limits, seconds: float) -> str:
    """Runs ``inside`` to its end; says why it was ended before, "" when it was not. ``folder`` lies on this machine."""
    limits, until = replace(limits, memory=HOST_MEMORY * limits.memory), time.monotonic() + seconds
    process = subprocess.Popen(
        command(inside, folder, root, limits.disk),
        env=surroundings(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    reason = ""
    try:
        while process.poll() is None and not reason:
            reason = too_much(process.pid, limits) or _too_full(folder, limits.disk)
            if time.monotonic() > until:
                reason = f"It gave no answer within {seconds:g} s."
            time.sleep(LOOK_SECONDS)
    finally:
        end(process)
        process.wait()
    return reason


def _too_full(folder: Path, most: int) -> str:
    """Looks at so many entries only as honest work may leave: a compiler's cache has some hundred."""
    entries, size = 0, 0
    for base, folders, files in os.walk(folder):
        entries += len(folders) + len(files)
        if entries > MOST_FILES or base.count("/") > folder.as_posix().count("/") + DEEPEST:
            return FULL
        for name in files:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(base, name)).st_blocks * 512
    return FULL if size > most else ""
