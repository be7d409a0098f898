"""One question and its judgement. Answers are kept as salted hashes, so that reading on does not give them away."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Question:
    """``right`` and the keys of ``known`` (answers that betray a mistake, with its sentence) are made by :meth:`key`.

    ``digits``: significant digits that an answer is rounded to. ``choices``: a choice instead of a number.
    ``why`` is said with a right answer.
    """

    id: str
    ask: str
    right: str
    why: str
    known: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    digits: int = 3
    choices: tuple[str, ...] = ()

    def key(self, answer: str | float) -> str:
        """The hash under which an answer is kept: a choice's words, or a number rounded to ``digits``."""
        said = answer if self.choices else self._rounded(float(answer))
        return hashlib.sha256(f"flashkit {self.id} {said}".encode()).hexdigest()[:12]

    def _rounded(self, value: float) -> str:
        return f"{value:.{self.digits}g}" if value else "0"


@dataclass(frozen=True)
class Judgement:
    """``kind``: "right", "known" (a mistake with a name), "wrong" or "unreadable"; ``says``: one or two sentences."""

    kind: str
    says: str


def judge(question: Question, answer: str) -> Judgement:
    """Judge what was typed or chosen. A number may differ by one unit of its last significant digit."""
    if question.choices:
        if answer not in question.choices:
            return Judgement("unreadable", "Choose one of the answers.")
        keys = [question.key(answer)]
    else:
        value = read_number(answer, question.unit)
        if value is None:
            unit = f" in {question.unit}" if question.unit else ""
            return Judgement("unreadable", f"Give one number{unit}, such as 1,024 or 0.25 or 1/4.")
        unit = 10.0 ** (math.floor(math.log10(abs(value))) - question.digits + 1) if value else 0
        keys = [question.key(value + shift) for shift in (0, -unit, unit)]
    if question.right in keys:
        return Judgement("right", question.why)
    for key in keys:
        if key in question.known:
            return Judgement("known", question.known[key])
    return Judgement("wrong", "Think about it once more, or run the code and see.")


def read_number(text: str, unit: str = "") -> float | None:
    """ "2,048", "2048 MiB" (the question's unit), "−1.5", "1/4" or "1e3" as a number; None if it is none."""
    text = text.strip().replace("−", "-").replace(",", "")
    if unit and text.lower().endswith(unit.lower()):
        text = text[: -len(unit)].strip()
    if match := re.fullmatch(r"([-+]?[\d.]+)\s*/\s*([\d.]+)", text):
        top, bottom = map(_float, match.groups())
        return top / bottom if top is not None and bottom else None
    return _float(text)


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None
