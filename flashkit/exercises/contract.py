"""What an exercise is: its signature, its cases, its oracle, its named mistakes and its budget. Plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from flashkit.runtime.call import Call


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
        """The case in one line: what feedback and failing checks print."""
        parts = [f"{k}={v}" for k, v in {**self.sizes, **self.options}.items()]
        return f"{self.why}: {', '.join(parts)}, {self.dtype}, {self.values} values, {self.layout} layout"


@dataclass(frozen=True)
class Fault:
    """A named mistake.

    name      short id, such as ``rescale-numerator-only``
    sentence  completes "Your output is what you get when ..."
    hint      what to look at, without the answer
    variants  one entry a spelling; each is handed to the exercise's ``wrong`` to build a wrong oracle.
              Empty when only the meter can see the mistake.
    loose     the rounding (relative) within which a wrong oracle is compared, for mistakes that are rounding
    """

    name: str
    sentence: str
    hint: str
    variants: tuple = ()
    loose: float = 0.0


Outputs = Mapping[str, np.ndarray]


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
    probe      case -> a case whose V is the identity, so that the output is P itself; None where that cannot be
    meter_says (case, finding) -> name of the fault that a finding of the meter stands for, or ""
    gpu_points points of its grade cell ``<id>.gpu``, judged by time on a GPU; 0 when it has none
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
    compiles: bool = True  # False where the answer is no kernel
    seconds: float = 20.0
    gpu_points: float = 0.0
