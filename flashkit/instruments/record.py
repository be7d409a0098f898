"""What the meter hands back: traffic per tensor, launches, findings and events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


@dataclass
class Traffic:
    """Bytes that kernels asked for of one tensor; lanes that a mask switches off do not count.

    `loaded`, `stored` and `atomic` count every request, so a tile read by ten programs counts ten times.
    `distinct_loaded` counts each element once however often it was read (atomics read too);
    `distinct_stored` each element that was stored to or updated by an atomic.
    """

    loaded: int = 0
    stored: int = 0
    atomic: int = 0
    distinct_loaded: int = 0
    distinct_stored: int = 0


@dataclass
class Finding:
    """One thing a kernel did that a GPU would punish, said in the tensor's own coordinates.

    kind: "outside", "unwritten", "uninitialised", "race" or "undefined" (a masked load without `other`).
    access: "load", "store" or "atomic"; empty for "unwritten".
    program, other_program: (x, y, z) program ids, or None where there is none.
    lineno, line, filename: the student's source line, None and "" where no line is to blame.
    detail: one sentence.
    overflow: only for "outside": every offending lane lies inside the tensor once a multiple of 2**32 (elements, or
    bytes) is added back, which is what a 32-bit product that wrapped looks like.
    """

    kind: str
    tensor: str
    index: tuple[int, ...]
    program: tuple[int, int, int] | None = None
    other_program: tuple[int, int, int] | None = None
    kernel: str | None = None
    lineno: int | None = None
    line: str = ""
    detail: str = ""
    filename: str | None = None
    access: str = ""
    overflow: bool = False


class MeterStop(Exception):
    """Raised inside a kernel before an access outside every argument takes place; nothing was read or written."""

    def __init__(self, finding: Finding):
        super().__init__(finding.detail)
        self.finding = finding


@dataclass
class Argument:
    """One kernel parameter as Triton's compiler would see it.

    type: "*fp16", "i32", "fp32", "tensordesc<fp16[64, 64]>", "constexpr" (also for an int equal to 1 and for None, as
    Triton specialises them), a tuple of those, or None where Triton has no type for the value.
    value: the number or constexpr value; None for tensors and descriptors.
    aligned: an integer or address divisible by 16.
    """

    type: str | tuple | None
    value: Any = None
    aligned: bool = False


@dataclass
class Launch:
    """One kernel launch: enough to compile the same kernel for a real GPU.

    options: the launch keywords that are no parameters (num_warps, num_stages, ...), which the interpreter drops.
    finished: False if the kernel raised or was stopped.
    """

    kernel: Any
    name: str
    arguments: dict[str, Argument]
    options: dict[str, Any]
    grid: tuple[int, int, int] | None = None
    finished: bool = False


class Event(NamedTuple):
    """One access of a program, for pictures. Rows count along dimension 2 of (B, H, N, d), else along the first.

    first: the lowest element's coordinates, in the tensor's own axes.
    """

    launch: int
    program: tuple[int, int, int]
    tensor: str
    access: str
    lowest_row: int
    highest_row: int
    bytes: int
    lineno: int | None
    first: tuple[int, ...] = ()


@dataclass
class Record:
    """Everything the meter saw in one call. Filled by `Meter`, complete after `Meter.finish`.

    locked: a compare-and-swap, an exchange or an integer semaphore was seen; the races of that launch are not judged.
    written_by_kernel(tensor): bool array of the tensor's shape, True where the last write was a store or an atomic of
    a metered kernel (also for views of tensors that kernels wrote).
    """

    traffic: dict[str, Traffic] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    undefined: list[Finding] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    torch_operators: list[str] = field(default_factory=list)
    foreign: dict[str, int] = field(default_factory=dict)  # argument of unknown origin -> the line that loads it
    locked: bool = False
    written_by_kernel: Callable[[Any], np.ndarray] | None = field(default=None, repr=False)
