"""Cases of a GPU run in child processes: one that hangs or dies is told as such, and the others are still judged.

A child gets the names of its cases and prints a line of JSON for each as soon as it is done (:func:`answer`).
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

FLAG = "--cases"
MOST = 2  # cases of a job that may hang or die: each costs a deadline, so the rest of such a job is not tried
DYING = 30  # seconds that a killed child may take to leave the GPU
NOT_TRIED = f"not tried, since {MOST} cases before it hung or died"

Told = Callable[[dict], None]


def start(main: Callable[..., int], one: Callable[[str], dict]) -> int:
    """What a module with cases does when it is run: as a child it answers those that it is asked for, else ``main``."""
    if sys.argv[1:2] != [FLAG]:
        return main(*sys.argv[1:])
    answer(sys.argv[2:], one)
    return 0


def answer(cases: Iterable[str], one: Callable[[str], dict]) -> None:
    """In the child: ``one(case)`` of each case, told at once."""
    for case in cases:
        tell({"case": case, **one(case)})


def tell(found: dict) -> None:
    print(json.dumps(found), flush=True)


def run(module: str, jobs: Sequence[Sequence[str]], seconds: float, told: Told, at_once: int = 1) -> None:
    """Judges the cases of each job in children of its own, ``at_once`` jobs at a time.

    jobs       lists of case names; ``python -m module --cases NAME ...`` answers them
    seconds    a child that tells nothing for so long is killed
    told       gets {"case": name, ...} of each case, one thread at a time; {"case": name, "ended": why} where none came
    """
    lock = threading.Lock()

    def one_at_a_time(found: dict) -> None:
        with lock:
            told(found)

    def judge(job: Sequence[str]) -> None:
        _job(module, list(job), seconds, one_at_a_time)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(judge, jobs))


def _job(module: str, left: list[str], seconds: float, told: Told) -> None:
    ended = 0
    while left and ended < MOST:

        def answered(found: dict) -> None:
            left.remove(found["case"])
            told(found)

        why = child([sys.executable, "-m", module, FLAG, *left], seconds, answered)
        if left:
            ended += 1
            told({"case": left.pop(0), "ended": why or "its process gave no answer"})
    for case in left:
        told({"case": case, "ended": NOT_TRIED})


def child(command: Sequence[str], seconds: float, told: Told) -> str:
    """Runs ``command`` and hands on what it tells; "" when it ended well, else why it did not, in one sentence."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
        try:
            while (line := lines.get(timeout=seconds)) is not None:
                if line.startswith("{"):
                    told(json.loads(line))
            status = process.wait(timeout=seconds)
        except (queue.Empty, subprocess.TimeoutExpired):
            return f"It hangs: nothing came for {seconds:g} s."
        finally:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may take its time over a kernel that hangs
                process.wait(DYING)
        errors.seek(0)
        last = errors.read().strip().splitlines()[-1:]
    return "" if status == 0 else f"It died with status {status}: {' '.join(last)[:300]}"


def _read(stream, lines: queue.Queue) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)
