"""A time limit for code that runs in this process, by the alarm signal."""

from __future__ import annotations

import contextlib
import signal
import threading


class DeadlineExceeded(BaseException):
    """The limit passed. Not an Exception, so that a student's ``except Exception`` does not swallow it."""


@contextlib.contextmanager
def deadline(seconds: float):
    """Raise DeadlineExceeded in the block after ``seconds``, and again each second until it has ended.

    Only the main thread can be interrupted; elsewhere the block is refused rather than run without a limit.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("check() can only stop endless loops in the main thread; call it from there")

    def ring(signum, frame):
        raise DeadlineExceeded

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
