"""Judges launch choices, one for each GPU architecture: does it compile, does it spill, how long would it take?

A choice holds when its predicted time is within the exercise's slack of the least that the course's own kernel reaches
on the published grid, or of what this very kernel would reach with the choices that are best there. Nothing runs here:
kernels come as launches that were seen, and are compiled apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from flashkit.exercises.contract import Tuning
from flashkit.instruments import resources, workload
from flashkit.instruments.compile_gate import STAGES
from flashkit.instruments.record import Argument, Launch
from flashkit.instruments.resources import Resources
from flashkit.instruments.roofline import predict
from reference.machines import OF_ARCH

Candidate = tuple[int, int, int, int]  # block_q, block_k, warps, stages
TILES = (("block_q", "block_m"), ("block_k", "block_n"))  # names, in any case, of the constants that say a tile
WARPS = 4  # what Triton takes where a launch does not say
PLAIN_FLOP = 128  # at most, of an instruction that is no matrix product: two multiply-adds in each of 32 lanes
NOT_TRIED = ("timeout", "unavailable")


class Kernel(Protocol):
    """A kernel that was launched: its constants and launch options, and the same with a candidate's instead."""

    constants: Mapping[str, Any]
    options: Mapping[str, Any]

    def relaunched(self, candidate: Candidate) -> Kernel:
        """The same kernel, launched with the candidate's tiles, warps and stages."""


Compiler = Callable[[Sequence[tuple[Kernel, int]]], Iterator[Resources]]  # kernels, each for its architecture


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

    def relaunched(self, candidate: Candidate) -> Launched:
        names = tile_names(self.constants)
        tiles = {name: Argument("constexpr", value) for name, value in zip(names, candidate, strict=False)}
        options = {"num_warps": candidate[2], "num_stages": candidate[3]}
        arguments = {**self.launch.arguments, **tiles}
        return Launched(replace(self.launch, arguments=arguments, options={**self.launch.options, **options}))


def compile_launched(asked: Sequence[tuple[Launched, int]]) -> Iterator[Resources]:
    """The compiler of kernels that were launched in this process; its answers are kept on disk."""
    return resources.each([(kernel.launch, arch) for kernel, arch in asked])


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
        return f"{mark} {self.part} {OF_ARCH[self.arch].gpu}: {told(self.candidate)}: {self.why}"


def print_nothing(done: int, total: int) -> None:
    """The progress of a judgement, told to nobody."""


def told(candidate: Candidate | None) -> str:
    """The candidate in words, as every report and table names it."""
    if candidate is None:
        return "no tile"
    block_q, block_k, warps, stages = candidate
    return f"{block_q} x {block_k}, {warps} warps, {stages} stages"


def judge(
    tuning: Tuning,
    launched: Mapping[int, Sequence[Kernel]],
    compiler: Compiler = compile_launched,
    show: Callable[[int, int], None] = print_nothing,
) -> list[Choice]:
    """A verdict for each architecture from the kernels launched for it, in order; ``show`` is told of the progress."""
    found = {arch: _unread(arch, kernels) for arch, kernels in launched.items()}
    asked = {arch: launched[arch][0] for arch, choice in found.items() if choice is None}
    for arch, row in zip(asked, compiler([(kernel, arch) for arch, kernel in asked.items()]), strict=True):
        found[arch] = _compiled(tuning, arch, candidate_of(asked[arch]), row)
        show(sum(choice is not None for choice in found.values()), len(found))
    slow = {arch: asked[arch] for arch, choice in found.items() if choice.seconds and not choice.holds}
    return list({**found, **_against_themselves(tuning, slow, found, compiler)}.values())


def _unread(arch: int, kernels: Sequence[Kernel]) -> Choice | None:
    """Why there is no choice to be read from what was launched; None where there is one."""
    if len(kernels) != 1:
        return Choice(arch, None, None, f"not judged, because {len(kernels)} kernels were launched instead of one")
    if candidate_of(kernels[0]) is None:
        why = "not judged, because the kernel has no tl.constexpr parameters block_q and block_k to read it from"
        return Choice(arch, None, None, why)
    return None


def _compiled(tuning: Tuning, arch: int, candidate: Candidate, row: Resources) -> Choice:
    """The verdict from the compiler's answer alone; with ``seconds`` and not holding where it is only too slow."""
    if row.kind in NOT_TRIED:
        return Choice(arch, candidate, None, f"not judged: {row.message}", row)
    problem = unfit(row)
    if problem:
        return Choice(arch, candidate, False, problem, row)
    doubt = unclear(tuning, row, candidate)
    if doubt:
        return Choice(arch, candidate, None, f"not judged, because {doubt}", row)
    seconds, least = predicted(tuning, arch, candidate, row), tuning.least[arch]
    why = f"{_resources(row)}; predicted {milliseconds(seconds)}, least {milliseconds(least)}"
    return Choice(arch, candidate, seconds <= (1 + tuning.slack) * least, why, row, seconds)


def _against_themselves(
    tuning: Tuning, slow: Mapping[int, Kernel], found: Mapping[int, Choice], compiler: Compiler
) -> dict[int, Choice]:
    """Choices that are too slow, compared with the same kernel launched as the course's best choices say.

    The first of these that compiles and does not spill counts. A kernel that is too large for all of them is not slowed
    by its choice; one that cannot be judged under them for another reason is not compared.
    """
    done: dict[int, Choice] = {}
    untried: dict[int, str] = {}
    for turn in range(max(map(len, tuning.shortlist.values()))):
        left = [arch for arch in slow if arch not in done and turn < len(tuning.shortlist[arch])]
        tried = [tuning.shortlist[arch][turn] for arch in left]
        rows = compiler([(slow[arch].relaunched(c), arch) for arch, c in zip(left, tried, strict=True)])
        for arch, candidate, row in zip(left, tried, rows, strict=True):
            if why := _incomparable(tuning, row, candidate):
                untried[arch] = f"not compared with {told(candidate)}: {why}"
            elif not unfit(row):
                done[arch] = _compared(tuning, found[arch], predicted(tuning, arch, candidate, row))
    for arch in slow.keys() - done.keys():
        holds, why = (None, untried[arch]) if arch in untried else (True, "for another kernel")
        done[arch] = replace(found[arch], holds=holds, why=f"{found[arch].why}, {why}")
    return done


def _incomparable(tuning: Tuning, row: Resources, candidate: Candidate) -> str:
    """Why a kernel under a better choice says nothing of its own choice; "" for one that fits, or is too large."""
    if row.kind in NOT_TRIED:
        return row.message.strip()
    if not row.ok and row.shared is None:  # such as a kernel that asserts its tile: it is not told how large it is
        return unfit(row)
    return "" if unfit(row) else unclear(tuning, row, candidate)


def _compared(tuning: Tuning, choice: Choice, own: float) -> Choice:
    text, times = choice.why.split("; predicted")[0], milliseconds(choice.seconds)
    if choice.seconds <= (1 + tuning.slack) * own:
        why = f"{text}; predicted {times}; the course's best choice would give your kernel {milliseconds(own)}"
        return replace(choice, holds=True, why=why)
    return replace(choice, why=f"{text}; predicted {times}, but {milliseconds(own)} with another choice of the grid")


def candidate_of(kernel: Kernel) -> Candidate | None:
    """The tiles, from the kernel's constants of these names, and the launch's warps and stages."""
    names = tile_names(kernel.constants)
    tiles = [kernel.constants[name] for name in names]
    if not names or not all(type(tile) is int and 1 <= tile <= 2**16 for tile in tiles):
        return None
    return (*tiles, int(kernel.options.get("num_warps", WARPS)), int(kernel.options.get("num_stages", STAGES)))


def tile_names(constants: Mapping[str, Any]) -> tuple[str, ...]:
    """What the kernel calls its tile's rows and its keys; empty where that cannot be told."""
    found = [[name for name in constants if name.lower() in known] for known in TILES]
    return (found[0][0], found[1][0]) if all(len(names) == 1 for names in found) else ()


def predicted(tuning: Tuning, arch: int, candidate: Candidate, row: Resources) -> float:
    """Seconds of the exercise's large forward with these tiles, on the GPU that stands for the architecture."""
    block_q, block_k, _, stages = candidate
    machine = OF_ARCH[arch]
    resident = row.occupancy.blocks
    work = workload.forward(replace(tuning.shape, block_q=block_q, block_k=block_k), machine.sms, resident)
    return predict(row, work, machine, stages).seconds


def unfit(row: Resources) -> str:
    """Why no GPU of this architecture should run it; "" when one should."""
    if not row.ok:
        said = [line.strip() for line in row.message.splitlines() if any(map(str.isalnum, line))]  # the last may be a ^
        return f"does not compile: {said[-1] if said else row.kind}"
    if row.spills:
        return f"{row.registers} registers a thread and {row.spills} B of them spilled to memory"
    if row.occupancy is None or not row.occupancy.blocks:
        return "not even one block fits on an SM"
    return ""


def unclear(tuning: Tuning, row: Resources, candidate: Candidate) -> str:
    """Why no time can be predicted for a kernel that fits; "" when one can."""
    loop = row.listing.main if row.listing else None
    if loop is None:
        return "no loop over key tiles is left in the compiled code"
    if not loop.matrix and PLAIN_FLOP * loop.issued * row.threads / 32 < _trip_flop(tuning, candidate):
        return "its loop has too few instructions for the products of a tile of block_q x block_k"
    if 0 < loop.matrix * row.threads / 32 < 0.99 * _trip_flop(tuning, candidate):
        return "its loop does less matrix work than a tile of block_q x block_k needs"
    if 2 * loop.special * row.threads < 0.99 * candidate[0] * candidate[1]:  # one takes two half-precision numbers
        return "its loop takes fewer exponentials than a tile of block_q x block_k needs"
    return ""


def _trip_flop(tuning: Tuning, candidate: Candidate) -> float:
    """FLOP of S and of P V in one trip; 2 a multiply-add."""
    return 2.0 * candidate[0] * candidate[1] * (tuning.shape.d + tuning.shape.d_v)


def _resources(row: Resources) -> str:
    held = row.occupancy
    blocks = f"{held.blocks} block{'s' * (held.blocks > 1)} an SM"
    return f"{row.registers} registers, no spills, {row.shared / 1024:.4g} KiB, {blocks}"


def milliseconds(seconds: float) -> str:
    """Seconds as text in ms; three decimals, so that choices can be compared."""
    return f"{seconds * 1e3:.3f} ms"
