"""What crosses the border between the judge and the code it judges: a Call goes in, an Outcome comes out.

Plain data only, so that a child process that holds no oracle can be sent the one and send back the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DTYPES = ("fp32", "fp16", "bf16")


@dataclass(frozen=True)
class Argument:
    """A tensor argument: its logical values and how they lie in memory (see :mod:`flashkit.runtime.placement`)."""

    values: np.ndarray
    dtype: str = "fp32"
    layout: str = "contiguous"


@dataclass(frozen=True)
class Returned:
    """A tensor that the student's function must return, or a plain number (dtype "number", shape ())."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Call:
    """One call: tensor arguments in order, then plain options by keyword; what must come back; the time limit."""

    tensors: Mapping[str, Argument]
    options: Mapping[str, Any]
    returns: tuple[Returned, ...]
    seconds: float = 20.0


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
    """What came of one call: outputs as float64 arrays by name, or a problem; and what the meter saw."""

    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    problem: Problem | None = None
    traffic: dict[str, Any] = field(default_factory=dict)
    launches: list[Any] = field(default_factory=list)
    findings: list[Any] = field(default_factory=list)
    undefined: list[Any] = field(default_factory=list)
    locked: bool = False
    printed: str = ""
    seconds: float = 0.0
