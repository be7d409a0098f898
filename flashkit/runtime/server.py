"""Inside the sandbox: loads torch and Triton once, then forks one child an exercise, which runs the student's code.

Started as ``python -I -c "... main()" FD`` by :mod:`flashkit.grading.sandbox`. FD is the control socket: the judge
sends one byte, OPEN with a channel for the next child or END, which ends the child and all it started. The child
speaks :mod:`flashkit.runtime.wire` on its channel. Nothing here is secret, and nothing said here is proof.
"""

from __future__ import annotations

import array
import builtins
import contextlib
import ctypes
import math
import os
import resource
import shutil
import signal
import socket
import sys
import time
import types
from pathlib import Path

OPEN, END = b"O", b"E"
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
ADDRESS_SPACE = 2**37  # cases with strides beyond 32 bits map tens of GiB that they never touch; memory is watched
FILE_SIZE = 2**28
OPEN_FILES = 256
CELLS = "cells"
KERNELS = 4  # at most that many compile signatures of one call are compiled


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    home = Path(os.environ["HOME"])
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # the children, of the same user, cannot trace or rewrite this process
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what they detach becomes ours to end
    _load()
    kept = {entry.name for entry in home.iterdir()}  # mount points
    control.sendall(b"R")
    child = None
    while True:
        order, channel = _order(control)
        if order == OPEN and channel is not None:
            child = os.fork()
            if child == 0:
                control.close()
                _child(channel, home)
            channel.close()
        elif order == END:
            control.sendall(_ended(child, home, kept))
            child = None
        else:
            return


def _load() -> None:
    """Imports what every child needs; one thread before any operation, since a fork after torch used its pool hangs."""
    import torch

    torch.set_num_threads(1)
    check_nothing()
    from flashkit.runtime.warm import warm

    outcome = warm()
    if outcome.problem:
        raise RuntimeError(f"this machine cannot interpret a kernel: {outcome.problem.sentence}")


def check_nothing() -> None:
    """From here on a cell that checks or displays something, or asks for a magic, does nothing."""
    import flashkit

    stub = types.ModuleType("flashkit.check")
    stub.check = stub.check_time = stub.hint = stub.sweep = lambda *args, **kwargs: NotJudgedHere()
    sys.modules["flashkit.check"] = flashkit.check = stub
    builtins.display = lambda *args, **kwargs: None
    builtins.get_ipython = NoShell


class NoShell:
    """What get_ipython() gives here: a cell may ask it for a magic, and nothing happens."""

    def __getattr__(self, name: str):
        return lambda *args, **kwargs: None


class NotJudgedHere:
    """What check() gives a cell of the student's own: the judge asks for calls itself."""

    points, verdict, mistake = 0.0, "not judged", ""

    def __repr__(self) -> str:
        return "not judged here"


def _order(control: socket.socket) -> tuple[bytes, socket.socket | None]:
    data, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(array.array("i").itemsize))
    for level, kind, fds in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            return data, socket.socket(fileno=array.array("i", fds)[0])
    return data, None


# ---- between two exercises ------------------------------------------------------------------------------


def _ended(child: int | None, home: Path, kept: set[str]) -> bytes:
    """Ends the child and its descendants, empties the home folder: "status clean" in one padded line."""
    status = -1
    if child is not None:
        time.sleep(0.01)  # a child that closed its channel is about to end by itself
        done, status = os.waitpid(child, os.WNOHANG)
        if not done:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:  # else it was ending by itself
                status = -1
    for _ in range(50):
        left = _children()
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    return f"{status} {int(not _children() and _emptied(home, kept))}".ljust(32).encode()


def _children() -> list[int]:
    """Our own children, among them what a dead child has left behind."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _emptied(home: Path, kept: set[str]) -> bool:
    for entry in home.iterdir():
        if entry.name in kept:
            continue
        with contextlib.suppress(OSError, RecursionError):
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    return {entry.name for entry in home.iterdir()} <= kept


# ---- the child ------------------------------------------------------------------------------------------


def _child(channel: socket.socket, home: Path) -> None:
    """Runs cells and calls until the judge closes the channel. Never returns."""
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        for limit, most in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_AS, ADDRESS_SPACE),
            (resource.RLIMIT_FSIZE, FILE_SIZE),
            (resource.RLIMIT_NOFILE, OPEN_FILES),
        ):
            resource.setrlimit(limit, (most, most))
        os.chdir(home)
        _serve(channel, home)
    finally:
        os._exit(0)


def _serve(channel: socket.socket, home: Path) -> None:
    from flashkit.instruments import compile_gate
    from flashkit.runtime import wire
    from flashkit.runtime.runner import run

    job, _ = wire.receive(channel)
    space = _run_cells(channel, home, job)
    function = space.get(job["function"])
    wire.send(channel, {"ready": callable(function)})
    while callable(function):
        asked, arrays = wire.receive(channel)
        undefined = math.nan if asked["undefined"] else None
        outcome = run(function, wire.read_call(asked, arrays), undefined=undefined, show=False)
        header, outputs = wire.outcome_header(outcome)
        launches = compile_gate.distinct(outcome.launches)[:KERNELS] if asked["kernels"] else []
        kernels = [compile_gate.describe(launch) for launch in launches]
        wire.send(channel, {**header, "kernels": kernels}, outputs)


def _run_cells(channel: socket.socket, home: Path, job: dict) -> dict:
    """Runs the cells one by one, each from a real file, since Triton reads sources; returns the names they define."""
    from flashkit.runtime import guard, wire
    from flashkit.runtime.capture import capture
    from flashkit.runtime.deadline import deadline
    from flashkit.runtime.runner import problem_of

    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    (home / CELLS).mkdir()
    for name, source in job["cells"]:  # all before the first runs: it may fill the disk
        (home / CELLS / name).write_text(source, encoding="utf-8")
    for number, (name, source) in enumerate(job["cells"]):
        wire.send(channel, {"cell": number})
        path = home / CELLS / name
        try:
            with capture(False), guard.no_oracle_imports(), deadline(job["seconds"]):
                exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
        except BaseException as error:
            told = problem_of(error, job["seconds"])
            wire.send(channel, {"failed": number, "problem": wire.problem_header(told)})
    return module.__dict__
