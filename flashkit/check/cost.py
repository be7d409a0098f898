"""What the compiled kernels cost and how long they would take: two lines of a check's report, both predicted.

The gate's answer about the case that was compiled is used again: nothing is compiled a second time. Its kernel is
given the exercise's large call, so that the time means something. How ptxas laid the loop out is not asked for: a
check has no time for the disassembler, and the small tiles of its cases have registers to spare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from flashkit.exercises.contract import Case, Exercise, Timed
from flashkit.instruments import resources
from flashkit.instruments.compile_gate import ARCH, CompileResult
from flashkit.instruments.resources import Resources
from flashkit.instruments.roofline import Prediction, predict
from reference.machines import MACHINE, MACHINES, Machine
from reference.occupancy import LIMITS

ELSEWHERE = "H200 measured"  # whose constants are measured; what is predicted for where there is no GPU


@dataclass(frozen=True)
class Target:
    """What is compiled and predicted for: an architecture (90 is sm_90) and the GPU's name, "" where there is none."""

    arch: int = ARCH
    gpu: str = ""

    @property
    def machine(self) -> Machine | None:
        """The GPU's data, our own measurements first; None for a GPU that the course has none of."""
        if not self.gpu:
            return MACHINE[ELSEWHERE]
        known = sorted(MACHINES, key=lambda machine: not machine.measured)
        return next((m for m in known if m.gpu in self.gpu and m.arch == self.arch), None)


def here() -> Target:
    """This machine's GPU; sm_90 and no name where there is none, or an older one than Ampere."""
    if not torch.cuda.is_available():
        return Target()
    major, minor = torch.cuda.get_device_capability()
    known = [arch for arch in LIMITS if arch // 10 == major and 80 <= arch <= 10 * major + minor]
    return Target(max(known), torch.cuda.get_device_name()) if known else Target()


@dataclass(frozen=True)
class Cost:
    """Lines for the report; ``seconds`` predicted for one large call, None where they could not be."""

    resources: str
    time: str = ""
    seconds: float | None = None

    @property
    def lines(self) -> list[str]:
        return [line for line in (self.resources, self.time) if line]


def cost(exercise: Exercise, case: Case, compiled: Sequence[CompileResult], target: Target) -> Cost | None:
    """What is told of kernels compiled for ``case``; None where there is none, or the compiler said no figures."""
    rows = [resources.of(result, result.kernel, target.arch) for result in compiled if result.ok]
    if not compiled or len(rows) < len(compiled) or any(row.occupancy is None or row.listing is None for row in rows):
        return None
    told = _resources(rows, exercise.timed.blocks if exercise.timed else 1)
    if exercise.timed is None:
        return Cost(told)
    large = exercise.timed.like(case)
    time, seconds = _time(exercise.timed, large, rows, [result.stages for result in compiled], target)
    return Cost(told, time, seconds)


def _resources(rows: Sequence[Resources], least: int) -> str:
    each = []
    for row in rows:
        spilled, held = f"{row.spills} B spilled" if row.spills else "no spills", row.occupancy
        each.append(
            f"{row.kernel} {row.registers} registers, {spilled}, {_kib(row.shared)} shared, "
            f"{held.blocks} blocks an SM (bound by {' and '.join(held.binds)})"
        )
    over = [row.kernel for row in rows if row.spills or row.occupancy.blocks < least]
    how = f"{', '.join(over)} over the budget" if over else "within the budget"
    blocks = f"at least {least} block{'s' * (least > 1)} an SM"
    return f"Compiles for sm_{rows[0].arch}; predicted: {'; '.join(each)}: {how} (no spills, {blocks})."


def _kib(size: int) -> str:
    return f"{size / 1024:.4g} KiB" if size >= 1024 else f"{size} B"


def _time(timed: Timed, large: Case, rows, stages, target: Target) -> tuple[str, float | None]:
    machine, works = target.machine, timed.works(large)
    if machine is None:
        return f"Time not predicted: the course has no data of {target.gpu}.", None
    if len(works) != len(rows):
        return f"Time not predicted: {len(rows)} kernels, where the course's own solution has {len(works)}.", None
    try:
        found = [predict(row, work, machine, depth) for row, work, depth in zip(rows, works, stages, strict=True)]
    except ValueError as error:
        return f"Time not predicted: {error}.", None
    seconds = sum(prediction.seconds for prediction in found)
    name = machine.gpu
    where = f"on this {name}" if target.gpu else f"on an {name}, not measured" if name[0] in "AH" else f"on a {name}"
    return f"Predicted time {where}: {_milliseconds(seconds)} for {_sizes(large)}; {_binds(found)}.", seconds


def _binds(found: Sequence[Prediction]) -> str:
    longest = max(found, key=lambda prediction: prediction.seconds)
    return {
        "latency": "it waits for memory's latency",
        "waits": "its loop waits at barriers",
    }.get(longest.binds, f"{longest.binds} binds")


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.3g} µs"


def _sizes(case: Case) -> str:
    named = [f"{name}={value}" for name, value in case.sizes.items() if name not in ("B", "H_q", "H_kv") or value > 1]
    tiles = [f"{name}={value}" for name, value in case.options.items() if name.startswith("block")]
    return ", ".join([*named, *tiles, *["causal"] * bool(case.options.get("causal")), case.dtype])
