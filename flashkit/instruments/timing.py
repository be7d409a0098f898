"""The fair timer: a kernel against a baseline in the same run, or no answer at all.

Each round writes fresh inputs into the same buffers, empties the L2 before every call, and times baseline, kernel and
the baseline once more as a control, forwards and then backwards (A B A' A' B A), so that a slow drift hits all three
alike. What counts is the median over rounds of the ratio kernel/baseline, with a bootstrap interval. When the control,
which should be 1, leaves 0.95 to 1.05, or an interval is wider than that, the verdict is UNSTABLE: never a worse grade.
Milliseconds are reported and not graded.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

ROUNDS, WARM_UPS, ATTEMPTS = 15, 5, 3
TOLERANCE = 0.05  # of the control, and of each side of an interval
RESAMPLES, CONFIDENCE = 2000, 0.95
FLOOR_SLACK = 0.9  # peaks are data sheets' and clocks vary: below this share of the floor nobody is believed
WALL_SLACK = 0.5e-3  # s that a kernel's host time may exceed its device time by, more than the baseline's does

Call = Callable[[], Any]


class Device(Protocol):
    """What the timer needs of a GPU; :class:`flashkit.instruments.gpu_clock.GPU` is the real one."""

    def refresh(self, seed: int) -> None:
        """Writes new inputs into the buffers that the calls read."""

    def run(self, call: Call) -> tuple[float, float]:
        """Flushes the L2, runs one call, waits: (seconds on the device, seconds on the host)."""

    def state(self) -> dict[str, Any]:
        """Name, driver, clocks, temperature, other processes: whatever may explain a number."""

    def busy(self) -> str:
        """Why nothing can be timed here now; "" when it can."""


@dataclass(frozen=True)
class Ratio:
    """A median of per-round ratios and its bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def narrow(self) -> bool:
        return self.high - self.value <= TOLERANCE * self.value and self.value - self.low <= TOLERANCE * self.value


@dataclass(frozen=True)
class Timing:
    """What the timer found.

    verdict    "measured"; "UNSTABLE" (try again, no grade); "implausible" (faster than physics, or work that the
               device's clock does not see); "not timed" (the GPU is in use)
    ratio      kernel over baseline: below 1 is faster. control: baseline over baseline. None when not timed
    seconds, baseline_seconds   medians on the device
    why        one sentence for every verdict but "measured"
    state      of the GPU, before and after
    """

    verdict: str
    why: str = ""
    ratio: Ratio | None = None
    control: Ratio | None = None
    seconds: float = 0.0
    baseline_seconds: float = 0.0
    rounds: int = 0
    attempts: int = 0
    state: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        if self.ratio is None:
            return f"{self.verdict}: {self.why}"
        r, c = self.ratio, self.control
        told = (
            f"{self.seconds * 1e3:.3f} ms, baseline {self.baseline_seconds * 1e3:.3f} ms: ratio {r.value:.3f} "
            f"({r.low:.3f} to {r.high:.3f}); control {c.value:.3f}; {self.rounds} rounds"
        )
        return told if self.verdict == "measured" else f"{self.verdict}: {self.why} ({told})"


def compare(
    kernel: Call, baseline: Call, device: Device, *, floor: float = 0.0, rounds: int = ROUNDS, seed: int = 0, show=None
) -> Timing:
    """Times ``kernel`` against ``baseline``; up to ATTEMPTS times while the answer is UNSTABLE.

    kernel, baseline   calls without arguments on the buffers that ``device`` refreshes
    floor      the least seconds that physics allows (FLOP over peak, bytes over bandwidth: the larger)
    show       progress: a function of (done, total), or None for a line on stderr
    """
    show = show or progress_line
    for attempt in range(1, ATTEMPTS + 1):
        if why := device.busy():
            return Timing("not timed", why, attempts=attempt)
        before = device.state()
        samples = _samples(kernel, baseline, device, rounds, seed + attempt * rounds, show)
        timing = _judge(samples, floor, attempt, [before, device.state()])
        if timing.verdict != "UNSTABLE":
            break
    return timing


def measure(call: Call, device: Device, *, rounds: int = ROUNDS, seed: int = 0) -> list[float]:
    """Seconds on the device of ``rounds`` runs of one call, warmed up, fresh inputs and an empty L2 each time."""
    device.refresh(seed)
    for _ in range(WARM_UPS):
        device.run(call)
    found = []
    for turn in range(rounds):
        device.refresh(seed + turn)
        found.append(device.run(call)[0])
    return found


@dataclass
class _Samples:
    """One list a participant of (device, host) seconds, a round's forward and backward turn averaged."""

    kernel: list[tuple[float, float]] = field(default_factory=list)
    baseline: list[tuple[float, float]] = field(default_factory=list)
    control: list[tuple[float, float]] = field(default_factory=list)


def _samples(kernel: Call, baseline: Call, device: Device, rounds: int, seed: int, show) -> _Samples:
    calls = {"baseline": baseline, "kernel": kernel, "control": baseline}
    device.refresh(seed)
    for call in calls.values():
        for _ in range(WARM_UPS):
            device.run(call)
    samples = _Samples()
    for turn in range(rounds):
        device.refresh(seed + turn)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        for name in (*calls, *reversed(calls)):
            taken[name].append(device.run(calls[name]))
        for name, pair in taken.items():
            getattr(samples, name).append(tuple(sum(times) / 2 for times in zip(*pair, strict=True)))
        show(turn + 1, rounds)
    return samples


def _judge(samples: _Samples, floor: float, attempt: int, state: list[dict[str, Any]]) -> Timing:
    ratio = median_ratio(_device(samples.kernel), _device(samples.baseline))
    control = median_ratio(_device(samples.control), _device(samples.baseline))
    seconds = statistics.median(_device(samples.kernel))
    why = ""
    verdict = "measured"
    if abs(control.value - 1) > TOLERANCE:
        verdict, why = "UNSTABLE", f"the baseline against itself gave {control.value:.2f}, not 1"
    elif not (ratio.narrow and control.narrow):
        verdict, why = "UNSTABLE", f"rounds differ by more than ±{TOLERANCE:.0%}: something else uses this GPU"
    elif seconds < FLOOR_SLACK * floor:
        verdict, why = "implausible", f"{seconds * 1e3:.3f} ms is below the {floor * 1e3:.3f} ms that physics allows"
    elif hidden := _hidden(samples):
        verdict, why = "implausible", f"{hidden * 1e3:.1f} ms of its work are outside the timed stream"
    baseline = statistics.median(_device(samples.baseline))
    return Timing(verdict, why, ratio, control, seconds, baseline, len(samples.kernel), attempt, state)


def _device(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [device for device, _ in pairs]


def _hidden(samples: _Samples) -> float:
    """Host seconds that the device's clock did not see, more than the baseline's launch costs; else 0."""

    def unseen(pairs: Sequence[tuple[float, float]]) -> float:
        return statistics.median(host - device for device, host in pairs)

    more = unseen(samples.kernel) - unseen(samples.baseline)
    return more if more > WALL_SLACK + 0.2 * statistics.median(_device(samples.kernel)) else 0.0


def median_ratio(top: Sequence[float], bottom: Sequence[float]) -> Ratio:
    """Median of the paired ratios, and the middle 95 % of the medians of resampled rounds."""
    ratios = [a / b for a, b in zip(top, bottom, strict=True)]
    chance = random.Random(len(ratios))
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    cut = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Ratio(statistics.median(ratios), medians[cut], medians[-cut - 1])


def progress_line(done: int, total: int) -> None:
    """A bar on stderr that rewrites itself."""
    filled = "█" * (20 * done // total)
    print(f"\rtiming {filled:20} {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)
