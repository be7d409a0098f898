"""What an exercise is: its signature, its cases, its oracle, its named mistakes and its budget. Plain data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flashkit.instruments.workload import Work
from flashkit.runtime.call import Call, Outcome
from reference.traffic import Shape

UNSAID = {("B", 1), ("H_q", 1), ("H_kv", 1)}


@dataclass(frozen=True)
class Case:
    """One call of the student's function: shapes, options, the kind of values, memory layout and dtype.

    ``values`` and ``layout`` name entries of :mod:`flashkit.exercises.inputs`; ``why`` says in a few words
    what the case is there to find, and is what feedback may show. ``seed`` fixes the random values.
    """

    why: str
    sizes: Mapping[str, int]
    options: Mapping[str, object] = field(default_factory=dict)
    values: str = "normal"
    layout: str = "contiguous"
    dtype: str = "fp32"
    seed: int = 0
    identity: bool = False  # V is the identity, so that the output is P itself

    def __hash__(self) -> int:  # sizes and options are dicts, which have none of their own
        return hash((self.describe(), self.seed, self.identity))

    def describe(self) -> str:
        """The case in one line: what feedback and failing checks print. What every case has goes without saying."""
        named = {**self.sizes, **self.options}
        if not named.get("causal", True):
            named = {name: value for name, value in named.items() if name not in ("causal", "offset")}
        named = {name: value for name, value in named.items() if (name, value) not in UNSAID}
        parts = [f"{k}={v:.6g}" if isinstance(v, float) else f"{k}={v}" for k, v in named.items()]
        if self.dtype != "number":  # plain numbers have no layout to tell of
            parts += [self.dtype]
            parts += [f"{self.values} values"] * (self.values != "normal")
            parts += [f"{self.layout} layout"] * (self.layout != "contiguous")
        return f"{self.why}: {', '.join(parts)}"


@dataclass(frozen=True)
class Fault:
    """A named mistake.

    name      short id, such as ``rescale-numerator-only``
    sentence  completes "Your output is what you get when ..."
    hint      what to look at, without the answer
    variants  one entry a spelling; each is handed to the exercise's ``wrong`` to build a wrong oracle.
              Empty when only the meter can see the mistake.
    """

    name: str
    sentence: str
    hint: str
    variants: tuple = ()


def chosen(faults: Sequence[Fault], names: Collection[str]) -> tuple[Fault, ...]:
    """The named faults, in the order of ``faults``; KeyError for an unknown name."""
    if unknown := set(names) - {fault.name for fault in faults}:
        raise KeyError(f"no such fault: {', '.join(sorted(unknown))}")
    return tuple(fault for fault in faults if fault.name in names)


Outputs = Mapping[str, np.ndarray]
SHARES = {"right": 0.70, "bytes": 0.15, "compiles": 0.15}  # of a Triton kernel's points; "right" is the gate
NUMBER = {"right": 1.0}  # of an answer that is no kernel
COMPILED = {"compiles": 1.0}  # of CUDA C++ where no GPU is needed: its answers have a grade cell of their own
WITH_CODE = {"right": 0.6, "bytes": 0.1, "compiles": 0.1, "code": 0.2}  # of a Triton kernel that is made for Hopper
WITH_LAUNCH = {"right": 0.6, "bytes": 0.15, "compiles": 0.15, "launch": 0.1}  # where the caller chooses the launch
COMPILED_CODE = {"compiles": 0.5, "code": 0.5}  # of CUDA C++ and Gluon for which `made_of` says what is wanted


@dataclass(frozen=True)
class CudaKernel:
    """What an exercise whose answer is CUDA C++ text wants of it.

    name    of the ``extern "C" __global__`` function
    archs   GPU architectures it must compile for
    launch  (case, threads) -> the launch of this case as plain data, see :mod:`flashkit.instruments.cuda_run`
    timed   the case whose time counts
    passes  bytes that the timed case must move, in copies of one tensor (a plain copy moves 2)
    """

    name: str
    archs: tuple[str, ...]
    launch: Callable[[Case, int], Mapping[str, object]]
    timed: Case
    passes: float


@dataclass(frozen=True)
class MadeOf:
    """What the code compiled for sm_90 must be made of, beside that nothing is spilled.

    copies     how tiles come to shared memory, "TMA" or "cp.async"; matrix "wgmma", or "" for any
    workers    warps of each role beside the kernel's own, the producer last; () where there is one role
    in_flight  products that may still run at a wait for the ones before them
    """

    copies: str
    matrix: str = ""
    workers: tuple[int, ...] = ()
    in_flight: int = 0


TIERS = ((1.1, 1.0), (1.5, 0.8), (3.0, 0.6))
SLOW = 0.4  # of a GPU cell's points: right, but slower than every tier


@dataclass(frozen=True)
class Timed:
    """A call large enough for its time to mean something: checks predict it, and a GPU measures it.

    sizes, options   of that call; what they do not name is the case's whose kernel was compiled
    works    case -> what each launch of the course's own solution has to do, in launch order
    tensors  case -> shape and dtype of each tensor argument, in order; their values are random
    blocks   the resource budget: at least so many blocks an SM, and no spills
    """

    sizes: Mapping[str, int]
    works: Callable[[Case], Sequence[Work]]
    tensors: Callable[[Case], Mapping[str, tuple[tuple[int, ...], str]]]
    options: Mapping[str, object] = field(default_factory=dict)
    blocks: int = 2

    def like(self, case: Case) -> Case:
        """The large call that the kernel compiled for ``case`` could be given."""
        options = {name: value for name, value in self.options.items() if name in case.options}
        return replace(case, why="timed", sizes={**case.sizes, **self.sizes}, options={**case.options, **options})


@dataclass(frozen=True)
class GpuCell:
    """How the grade cell ``<id>.gpu`` of a Triton exercise is judged: :mod:`flashkit.check.timing`. Needs ``timed``.

    case   the call that is compared and timed; its ``values`` are not used
    flop   case -> floating-point operations that no right kernel can do without
    peers  name -> the same result by PyTorch, from the same arguments: timed beside it and told, never graded
    tiers  (largest ratio of its time to the course's own kernel's, share of the points), the fastest first
    """

    case: Case
    flop: Callable[[Case], float]
    peers: Mapping[str, Callable] = field(default_factory=dict)
    tiers: Sequence[tuple[float, float]] = TIERS


@dataclass(frozen=True)
class Tuning:
    """How a table of launch choices is judged, one choice an architecture: by compiling it and predicting its time.

    shape       of the forward that is predicted; its tiles are the choice's
    candidates  the published grid: (block_q, block_k, warps, stages)
    least       arch -> the least seconds predicted for the course's own kernel on that grid
    shortlist   arch -> candidates to compare with, best first, for a kernel that is slower than the course's
    slack       how much above the least predicted time a choice may lie, as a share
    """

    shape: Shape
    candidates: tuple[tuple[int, int, int, int], ...]
    least: Mapping[int, float]
    shortlist: Mapping[int, tuple[tuple[int, int, int, int], ...]]
    slack: float


@dataclass(frozen=True)
class Exercise:
    """One graded item. All callables take a :class:`Case` and are deterministic in it.

    signature  what the student writes, shown in messages
    call       case -> Call (inputs in memory layouts, what must come back)
    oracle     case -> float64 outputs by name
    honest     case -> list of outputs of honest runs in the kernel's own precision, which set the tolerance
    wrong      (case, variant of a fault) -> outputs that a kernel with that mistake would give
    cases      public cases; ``draw(seed)`` gives secret ones of the same kinds
    budget     case -> bytes that may be requested by tensor name (loads for inputs, stores for outputs);
               "*" stands for all scratch tensors together
    least      case -> bytes by tensor name that any right kernel must request: each needed element once
    probe      case -> a case whose V is the identity, so that the output is P itself; None where that cannot be
    derive     (case, outputs) -> what is compared, made of what came back, such as a makespan of the schedule
    simulate   (case, outcome) -> outcome, where the answer is a barrier program: what the simulator makes of it
    named      [(case, outcome), ...] -> names of the faults that explain them; None: found by the wrong oracles
    at_most    names of derived numbers that may be smaller than the oracle's
    meter_says (case, finding) -> name of the fault that a finding of the meter stands for, or ""
    shares     how the points divide among what is judged; "right", where it counts, is the gate
    launch_options  sizes of a case that are options of the launch: the "launch" part is that none of them is ignored,
               as two cases show that differ in it alone
    cuda       set where the answer is CUDA C++: ``call`` then asks for the text and the launch choice
    gluon      true where the answer is a Gluon kernel, which no interpreter takes
    made_of    what the compiled code must be made of, where that has a share of the points
    gpu_points points of its grade cell ``<id>.gpu``, judged on a GPU only; 0 when it has none
    timed      the call whose time a check predicts, and measures on a GPU; None: no time is told
    gpu        how ``<id>.gpu`` is judged, where the answer is a Triton kernel; None: pending everywhere
    tuning     set where the answer is a kernel with launch choices, whose compilation is judged
    """

    id: str
    title: str
    points: float
    minutes: int
    difficulty: int
    signature: str
    call: Callable[[Case], Call]
    oracle: Callable[[Case], Outputs]
    honest: Callable[[Case], list[Outputs]]
    wrong: Callable[[Case, object], Outputs]
    cases: tuple[Case, ...]
    draw: Callable[[int], tuple[Case, ...]]
    faults: tuple[Fault, ...]
    budget: Callable[[Case], Mapping[str, int]]
    hints: tuple[str, str, str]
    probe: Callable[[Case], Case | None] = lambda case: None
    meter_says: Callable[[Case, object], str] = lambda case, finding: ""
    lse_outputs: tuple[str, ...] = ("lse",)
    derive: Callable[[Case, Outputs], Outputs] = lambda case, outputs: outputs
    at_most: tuple[str, ...] = ()
    simulate: Callable[[Case, Outcome], Outcome] = lambda case, outcome: outcome
    named: Callable[[Sequence[tuple[Case, Outcome]]], tuple[str, ...]] | None = None
    least: Callable[[Case], Mapping[str, int]] = lambda case: {}
    shares: Mapping[str, float] = field(default_factory=lambda: SHARES)
    launch_options: tuple[str, ...] = ()
    cuda: CudaKernel | None = None
    gluon: bool = False
    made_of: MadeOf | None = None
    seconds: float = 20.0  # one call's time limit
    gpu_points: float = 0.0
    timed: Timed | None = None
    gpu: GpuCell | None = None
    tuning: Tuning | None = None

    def __post_init__(self):
        plain = self.call
        object.__setattr__(self, "call", lambda case: replace(plain(case), seconds=self.seconds))

    @property
    def function(self) -> str:
        """Name of what the student writes, such as ``flash_forward``."""
        return self.signature.split("(")[0]

    @property
    def needs_gpu(self) -> bool:
        """Are answers judged on a GPU only? What compiles earns its points anywhere."""
        return self.cuda is not None or self.gluon
