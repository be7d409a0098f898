"""What crosses the border between the judge and the code it judges: a Call goes in, an Outcome comes out.

Plain data only, so that a child process that holds no oracle can be sent the one and send back the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

TEXT_LIMIT = 2**17  # characters of a returned text: a hundred times the course's own
TEXTS = ("text", "program")  # dtypes that cross as texts
LIST_LIMIT = 2**12  # entries of a returned list, and visits of a schedule


@dataclass(frozen=True)
class Argument:
    """A tensor argument: its logical values and how they lie in memory (see :mod:`flashkit.runtime.placement`)."""

    values: np.ndarray
    dtype: str = "fp32"
    layout: str = "contiguous"


@dataclass(frozen=True)
class Returned:
    """A tensor that the student's function must return, a plain number or a text (dtype "number", "text"; shape ()).

    dtype "program" is a barrier program, a text from there on: see :mod:`flashkit.runtime.program`.
    dtype "list" is a list of rows of plain numbers, of any length where the shape says -1. "schedule" is not returned:
    the meter makes it, see :mod:`flashkit.instruments.schedule`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Call:
    """One call: tensor arguments in order, then plain options by keyword; what must come back; the time limit.

    With ``upstream``, the tensor of that name is not passed: it is the gradient of the first output, and the outputs
    named ``d<argument>`` are the gradients of the arguments that autograd makes of it.
    ``dry``: kernels are not launched, only what they would have been given is noted.
    """

    tensors: Mapping[str, Argument]
    options: Mapping[str, Any]
    returns: tuple[Returned, ...]
    seconds: float = 20.0
    upstream: str = ""
    dry: bool = False

    @property
    def gradients(self) -> tuple[Returned, ...]:
        """The outputs that autograd gives, in the order of their arguments; none without ``upstream``."""
        if not self.upstream:
            return ()
        by_name = {r.name: r for r in self.returns}
        return tuple(by_name["d" + name] for name in self.tensors if "d" + name in by_name)

    @property
    def returned(self) -> tuple[Returned, ...]:
        """The outputs that the function itself returns."""
        return tuple(r for r in self.returns if r not in self.gradients and r.dtype != "schedule")


@dataclass(frozen=True)
class Problem:
    """Why a call gave nothing that can be compared.

    verdict is ``crashed``, ``refused`` or ``wrong``; sentence is what the student reads; fault names the
    mistake when it is a known one; lineno and line are the student's, traceback is folded below them;
    finding is the meter's, when it was the meter that objected.
    """

    verdict: str
    sentence: str
    fault: str = ""
    where: str = ""
    lineno: int = 0
    line: str = ""
    traceback: str = ""
    finding: Any = None


@dataclass
class Outcome:
    """What came of one call: outputs as float64 arrays by name, texts, or a problem; and what the meter saw."""

    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    problem: Problem | None = None
    traffic: dict[str, Any] = field(default_factory=dict)
    launches: list[Any] = field(default_factory=list)
    findings: list[Any] = field(default_factory=list)
    undefined: list[Any] = field(default_factory=list)
    locked: bool = False
    printed: str = ""
    seconds: float = 0.0
