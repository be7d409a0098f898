"""One sandbox a submission: bubblewrap, no network, a read-only root, and nothing of the course but its runtime part.

Not mounted: reference/, flashkit.exercises, .check and .grading, solutions/, gradebook, submissions, homes. The new
process namespace, a private /tmp of limited size and a watch over memory and processes make every end a clean one:
closing the sandbox ends all that ran in it. Where bubblewrap is missing, a plain child runs instead, and says so.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent  # flashkit
COURSE = Path("/course")  # where the runtime part lies inside
RUNTIME = ("__init__.py", "environment.py", "runtime", "instruments")
START = "import sys; sys.path.insert(0, {course!r}); from flashkit.runtime.server import main; main()"
START_SECONDS = 120.0
END_SECONDS = 20.0
WATCH_SECONDS = 0.05
UNSAFE = (
    "bubblewrap is missing or may not be used here, so student code runs as a plain child of the grader: it can read "
    "what you can read, solutions and gradebook among it, and use the network. Install it (Debian: apt-get install "
    "bubblewrap) before you grade work that you have not read."
)


@dataclass(frozen=True)
class Limits:
    """Of one sandbox: bytes of memory and of /tmp, processes at one time."""

    memory: int = 4 * 2**30
    disk: int = 2**28
    processes: int = 64


class SandboxLost(Exception):
    """The sandbox ended, or was ended; the text says why, for the student."""


class Sandbox:
    """A running server (flashkit.runtime.server) in a sandbox. ``begin`` one exercise's child, then ``end`` it."""

    def __init__(self, limits: Limits):
        self.limits, self.reason = limits, ""
        self._home = tempfile.TemporaryDirectory(prefix="grading-", ignore_cleanup_errors=True)
        self._control, inside = socket.socketpair()
        command = server_command(inside.fileno(), Path(self._home.name), limits)
        self._process = subprocess.Popen(
            command,
            pass_fds=[inside.fileno()],
            env=environment(self._home.name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        inside.close()
        self._watch = threading.Thread(target=self._watched, daemon=True)
        self._watch.start()
        if self._hear(1, START_SECONDS) != b"R":
            self.close()
            raise RuntimeError(f"the grading server did not start: {' '.join(command[:3])} ... (see CLASSROOM.md)")

    def begin(self) -> socket.socket:
        """The channel to a new child. Raises SandboxLost."""
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._control, [b"O"], [theirs.fileno()])
        except OSError as error:
            ours.close()
            raise SandboxLost(self.reason or "The grading process was ended.") from error
        finally:
            theirs.close()
        return ours

    def end(self) -> tuple[str, bool]:
        """Ends the child and what it started: how it had ended ("" if it had not), and whether all is clean now."""
        self._look()  # what floods the machine may also have kept the watch from its turn
        with contextlib.suppress(OSError):
            self._control.sendall(b"E")
        said = self._hear(32, END_SECONDS).split()
        if len(said) != 2:
            return self.reason or "It ended the process that runs it.", False
        status, clean = (int(word) for word in said)
        return self.reason or _how(status), clean == 1 and not self.reason

    def close(self) -> None:
        """Ends everything in the sandbox; may be called twice."""
        self._kill()
        self._process.wait()
        self._control.close()
        self._home.cleanup()

    def _hear(self, count: int, seconds: float) -> bytes:
        self._control.settimeout(seconds)
        heard = b""
        with contextlib.suppress(OSError):
            while len(heard) < count and (part := self._control.recv(count - len(heard))):
                heard += part
        return heard

    def _watched(self) -> None:
        while self._process.poll() is None:
            self._look()
            time.sleep(WATCH_SECONDS)

    def _look(self) -> None:
        """Ends the sandbox when it has taken too much; then ``reason`` says what."""
        if not self.reason and (reason := too_much(self._process.pid, self.limits)):
            self.reason = reason
            self._kill()

    def _kill(self) -> None:
        end(self._process)


# ---- commands -------------------------------------------------------------------------------------------


def server_command(control: int, home: Path, limits: Limits) -> list[str]:
    """What to start for a server that takes its orders from the file descriptor ``control``."""
    if not available():
        course = _copied_runtime(home / "course")
        return [sys.executable, "-I", "-c", START.format(course=str(course)), str(control)]
    return [*_bubblewrap(limits), sys.executable, "-I", "-c", START.format(course=str(COURSE)), str(control)]


def compiler_command(folder: Path, limits: Limits) -> list[str]:
    """What to start for one compilation (flashkit.instruments.compile_child), which reads and writes ``folder``."""
    kib = limits.memory * 4 // 1024
    bounded = ["/bin/sh", "-c", f'ulimit -v {kib}; exec "$@"', "sh", sys.executable, "-I"]
    if not available():
        return [*bounded, str(PACKAGE / "instruments" / "compile_child.py"), str(folder)]
    child = COURSE / "flashkit" / "instruments" / "compile_child.py"
    inside = [*_bubblewrap(limits), "--bind", str(folder), str(folder), "--setenv", "HOME", str(folder)]
    inside += ["--setenv", "TMPDIR", str(folder), "--setenv", "TRITON_CACHE_DIR", str(folder / "cache")]
    return [*inside, *bounded, str(child), str(folder)]


def _bubblewrap(limits: Limits) -> list[str]:
    command = [
        *("bwrap", "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"),
        *no_new_namespaces(),
        *("--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"),
        *(word for path in _links() for word in ("--symlink", os.readlink(path), path)),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--size", str(limits.disk), "--tmpfs", "/tmp"),
    ]
    for path, hidden in _mounts():
        command += ["--size", "4096", "--tmpfs", path, "--remount-ro", path] if hidden else ["--ro-bind", path, path]
    for name in RUNTIME:
        command += ["--ro-bind", str(PACKAGE / name), str(COURSE / "flashkit" / name)]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
    for name, value in environment("/tmp").items():
        command += ["--setenv", name, value]
    return command


def environment(home: str) -> dict[str, str]:
    """The whole environment of student code: nothing of the grader's own, no word on whether this is grading."""
    own = {"HOME": home, "TMPDIR": home, "TRITON_CACHE_DIR": f"{home}/.triton"}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **own, **threads}


def _links() -> list[str]:
    return [path for path in ("/bin", "/sbin", "/lib", "/lib32", "/lib64") if os.path.islink(path)]


@functools.cache
def _mounts() -> list[tuple[str, bool]]:
    """(path, hidden) from the outside in: Python and the libraries, without the course wherever it lies in them."""
    shown = {"/usr", sys.prefix, sys.base_prefix, *package_folders()}
    shown |= {path for path in ("/bin", "/sbin", "/lib", "/lib32", "/lib64") if not os.path.islink(path)}
    shown = {os.path.realpath(path) for path in shown if os.path.isdir(path)} | {sys.prefix, sys.base_prefix}
    hidden = {str(path) for path in _course_folders()}
    hidden = {path for path in hidden if any(path.startswith(f"{root}/") for root in shown)}
    paths = [(path, False) for path in shown] + [(path, True) for path in hidden]
    return sorted(paths, key=lambda entry: (entry[0].count("/"), entry[0]))


def package_folders() -> set[str]:
    """The site-packages of what student code imports: outside the prefixes where a venv sees the system's."""
    import numpy
    import torch
    import triton

    return {str(Path(module.__file__).resolve().parents[1]) for module in (numpy, torch, triton)}


def _course_folders() -> set[Path]:
    """What student code must not find: the course as a checkout or as installed packages, and the class's folder."""
    found = {PACKAGE, PACKAGE.parent / "reference", Path.cwd()}
    if (PACKAGE.parent / "solutions").is_dir() or (PACKAGE.parent / "grader_config.py").is_file():
        found.add(PACKAGE.parent)
    return {path for path in found if path.is_dir()}


@functools.cache
def available() -> bool:
    """True when bubblewrap works here; says loudly, once, when it does not."""
    probe = ["bwrap", "--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--ro-bind", "/", "/", "true"]
    works = bool(shutil.which("bwrap")) and subprocess.run(probe, capture_output=True).returncode == 0
    if not works:
        warnings.warn(UNSAFE, RuntimeWarning, stacklevel=2)
        print(f"grading: WARNING: {UNSAFE}", file=sys.stderr)
    return works


@functools.cache
def no_new_namespaces() -> tuple[str, ...]:
    """In a user namespace of its own, student code could mount file systems whose memory no one counts (needs 0.8)."""
    probe = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
    works = subprocess.run([*probe, "--ro-bind", "/", "/", "true"], capture_output=True).returncode == 0
    return ("--disable-userns",) if works else ()


def _copied_runtime(course: Path) -> Path:
    """The runtime part alone, for plain children: so that they import no more than a sandbox would hold."""
    for name in RUNTIME:
        source, target = PACKAGE / name, course / "flashkit" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target, dirs_exist_ok=True) if source.is_dir() else shutil.copy(source, target)
    return course


# ---- processes ------------------------------------------------------------------------------------------


def too_much(pid: int, limits: Limits) -> str:
    """What the processes below ``pid`` have taken too much of, in a sentence; "" when they keep the limits."""
    pids = descendants(pid)
    if len(pids) > limits.processes:
        return f"It started more than {limits.processes} processes."
    # The quick count takes a page that forked processes share once for each of them; the slow one does not.
    if sum(map(_own_bytes, pids)) > limits.memory and sum(map(_own_share, pids)) > limits.memory:
        return f"It used more than {limits.memory / 2**30:g} GiB of memory."
    return ""


def end(process: subprocess.Popen) -> None:
    """In a sandbox the end of its first process ends the rest; a plain child's own children are ended one by one."""
    if process.poll() is None:  # not reaped, so the process id is still ours
        for pid in reversed(descendants(process.pid)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.kill()


def descendants(pid: int) -> list[int]:
    """Process ids below ``pid``, as /proc shows them now."""
    found, todo = [], [pid]
    while todo and len(found) < 4096:
        current = todo.pop()
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{current}/task"):
                with open(f"/proc/{current}/task/{task}/children") as file:
                    children = [int(word) for word in file.read().split()]
                found += children
                todo += children
    return found


def _own_bytes(pid: int) -> int:
    """Memory that the process took itself: its own pages and shared ones, without those of files it has mapped."""
    return _kib_of(pid, "status", ("RssAnon:", "RssShmem:")) * 1024


def _own_share(pid: int) -> int:
    """The same, a page that n processes map counted as 1/n; the plain count where the kernel does not tell."""
    return _kib_of(pid, "smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")) * 1024 or _own_bytes(pid)


def _kib_of(pid: int, file: str, names: tuple[str, ...]) -> int:
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/{file}") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith(names))
    return 0


def _how(status: int) -> str:
    if status == -1:
        return ""
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        meaning = {"SIGSEGV": "a memory error", "SIGKILL": "killed", "SIGABRT": "aborted"}.get(name, name)
        return f"The process that ran it crashed ({meaning})."
    return f"It ended its own process (exit status {os.WEXITSTATUS(status)})."
