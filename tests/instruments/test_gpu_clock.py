"""Who else uses the GPU, as the timer's real device sees it; nvidia-smi's answer is given here."""

import os
import subprocess
import sys

import flashkit  # noqa: F401  comes before triton
from flashkit.instruments import gpu_clock


def test_who_waits_for_the_timing_is_no_neighbour_and_another_program_is(monkeypatch):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        apps = [str(os.getpid()), str(os.getppid()), str(other.pid), "99999999", "[N/A]"]
        monkeypatch.setattr(gpu_clock, "_ask", lambda question: apps)
        gpu = gpu_clock.GPU.__new__(gpu_clock.GPU)  # without a device
        assert gpu.busy() == f"other processes use this GPU ({other.pid})"
    finally:
        other.communicate(b"\n")
