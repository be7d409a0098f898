"""Judges launch choices, one for each GPU architecture: does it compile, does it spill, how long is it predicted to take?

A choice holds when its predicted time is within the exercise's slack of the least that the course's own kernel reaches
on the published grid, or of what this very kernel would reach with the choices that are best there. Nothing runs here: kernels
come as launches that were seen, and are compiled apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from flashkit.exercises.contract import Tuning
from flashkit.instruments import resources, workload
from flashkit.instruments.record import Argument, Launch
from flashkit.instruments.resources import AT_ONCE, Resources
from flashkit.instruments.roofline import predict
from reference.machines import OF_ARCH

Candidate = tuple[int, int, int, int]  # block_q, block_k, warps, stages
WARPS, STAGES = 4, 3  # what Triton takes where a launch does not say


class Kernel(Protocol):
    """A kernel that was launched: what it was given, and what a compiler makes of it."""

    constants: Mapping[str, Any]
    options: Mapping[str, Any]

    def compiled(self, arch: int, candidate: Candidate | None = None) -> Resources:
        """Compiled as it was launched, or with a candidate's tiles, warps and stages instead of its own."""


@dataclass(frozen=True)
class Launched:
    """A kernel that was launched in this process."""

    launch: Launch

    @property
    def constants(self) -> Mapping[str, Any]:
        return {name: a.value for name, a in self.launch.arguments.items() if a.type == "constexpr"}

    @property
    def options(self) -> Mapping[str, Any]:
        return self.launch.options

    def compiled(self, arch: int, candidate: Candidate | None = None) -> Resources:
        return resources.resources(_relaunched(self.launch, candidate), archs=(arch,))[0]


def _relaunched(launch: Launch, candidate: Candidate | None) -> Launch:
    if candidate is None:
        return launch
    tiles = {name: Argument("constexpr", value) for name, value in zip(TILES, candidate, strict=False)}
    options = {"num_warps": candidate[2], "num_stages": candidate[3]}
    return replace(launch, arguments={**launch.arguments, **tiles}, options={**launch.options, **options})


TILES = ("block_q", "block_k")


@dataclass(frozen=True)
class Choice:
    """What became of one architecture's choice. ``holds`` is None where it could not be judged; ``why`` says it all."""

    arch: int
    candidate: Candidate | None
    holds: bool | None
    why: str
    row: Resources | None = None
    seconds: float | None = None

    @property
    def part(self) -> str:
        """Its name among an exercise's shares."""
        return f"sm_{self.arch}"

    def __str__(self) -> str:
        mark = {True: "✓", False: "✗", None: "?"}[self.holds]
        return f"{mark} {self.part} {OF_ARCH[self.arch].name.removesuffix(' measured')}: {told(self.candidate)}: {self.why}"


def told(candidate: Candidate | None) -> str:
    if candidate is None:
        return "no tile"
    block_q, block_k, warps, stages = candidate
    return f"{block_q} x {block_k}, {warps} warps, {stages} stages"


def judge_all(
    tuning: Tuning,
    launched: Mapping[int, Sequence[Kernel]],
    show: Callable[[int, int], None] = lambda done, total: None,
) -> list[Choice]:
    """A verdict for each architecture from the kernels launched for it, in order; ``show`` is told of the progress."""
    done = []
    with ThreadPoolExecutor(AT_ONCE) as pool:  # each waits for a compiler that is a process of its own
        for choice in pool.map(lambda arch: judge_one(tuning, arch, launched[arch]), launched):
            done.append(choice)
            show(len(done), len(launched))
    return done


def judge_one(tuning: Tuning, arch: int, kernels: Sequence[Kernel]) -> Choice:
    """The verdict on one architecture's choice."""
    if len(kernels) != 1:
        return Choice(arch, None, None, f"{len(kernels)} kernels were launched, one is judged. Not judged")
    candidate = candidate_of(kernels[0])
    if candidate is None:
        return Choice(
            arch, None, None, "the kernel has no tl.constexpr parameters block_q and block_k to read. Not judged"
        )
    row = kernels[0].compiled(arch)
    if row.kind in ("timeout", "unavailable"):
        return Choice(arch, candidate, None, f"not judged: {row.message}", row)
    problem = _unfit(tuning, row, candidate)
    if problem:
        return Choice(arch, candidate, False, problem, row)
    seconds = predicted(tuning, arch, candidate, row)
    holds, why = _fast(tuning, arch, kernels[0], seconds)
    return Choice(arch, candidate, holds, f"{_resources(row)}; {why}", row, seconds)


def candidate_of(kernel: Kernel) -> Candidate | None:
    """The tiles, from the kernel's constants of these names, and the launch's warps and stages."""
    tiles = [kernel.constants.get(name) for name in TILES]
    if not all(type(tile) is int and 1 <= tile <= 2**16 for tile in tiles):
        return None
    return (*tiles, int(kernel.options.get("num_warps", WARPS)), int(kernel.options.get("num_stages", STAGES)))


def predicted(tuning: Tuning, arch: int, candidate: Candidate, row: Resources) -> float:
    """Seconds of the exercise's large forward with these tiles, on the GPU that stands for the architecture."""
    block_q, block_k, _, stages = candidate
    machine = OF_ARCH[arch]
    resident = row.occupancy.blocks
    work = workload.forward(replace(tuning.shape, block_q=block_q, block_k=block_k), machine.sms, resident)
    return predict(row, work, machine, stages).seconds


def _unfit(tuning: Tuning, row: Resources, candidate: Candidate) -> str:
    """Why no GPU of this architecture should run it; "" when one should."""
    if not row.ok:
        return f"does not compile: {row.message.strip().splitlines()[-1] if row.message.strip() else row.kind}"
    if row.spills:
        return f"{row.registers} registers a thread and {row.spills} B of them spilled to memory"
    if row.occupancy is None or not row.occupancy.blocks:
        return "not even one block fits on an SM"
    loop = row.listing.main if row.listing else None
    if loop is None:
        return "no loop over key tiles is left in the compiled code, so that no time can be predicted"
    if 0 < loop.matrix * row.threads / 32 < 0.99 * _trip_flop(tuning, candidate):
        return "its loop does less matrix work than a tile of block_q x block_k needs"
    return ""


def _trip_flop(tuning: Tuning, candidate: Candidate) -> float:
    """FLOP of S and of P V in one trip; 2 a multiply-add."""
    return 2.0 * candidate[0] * candidate[1] * (tuning.shape.d + tuning.shape.d_v)


def _resources(row: Resources) -> str:
    held = row.occupancy
    blocks = f"{held.blocks} block{'s' * (held.blocks > 1)} an SM"
    return f"{row.registers} registers, no spills, {row.shared / 1024:.4g} KiB, {blocks}"


def _fast(tuning: Tuning, arch: int, kernel: Kernel, seconds: float) -> tuple[bool, str]:
    """Is it within the slack of the least time? Comparing with itself costs compilations, so it comes second."""
    told, least = f"predicted {_ms(seconds)}", tuning.least[arch]
    if seconds <= (1 + tuning.slack) * least:
        return True, f"{told}, least {_ms(least)}"
    for candidate in tuning.shortlist[arch]:
        row = kernel.compiled(arch, candidate)
        if row.kind in ("timeout", "unavailable") or _unfit(tuning, row, candidate):
            continue
        own = predicted(tuning, arch, candidate, row)
        if seconds <= (1 + tuning.slack) * own:
            return True, f"{told}; the course's best choice would give your kernel {_ms(own)}"
        return False, f"{told}, but your kernel is predicted {_ms(own)} with another choice of the grid"
    return True, f"{told}; no choice that suits the course's kernel fits yours"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"
