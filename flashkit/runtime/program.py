"""A barrier program as text: runs a student's generators to their end and writes down what they yield, line by line.

It understands no instruction: the judge, who has the simulator, reads the text. So the simulator, and with it every
verdict and every time, stays outside the process that runs student code.
"""

from __future__ import annotations

import json
import linecache
from collections.abc import Iterator
from typing import Any

import numpy as np

from flashkit.runtime.call import TEXT_LIMIT

LONGEST = 1500  # instructions of all roles together: thirty times what an exercise needs
NAME = 40  # characters of one name
OPERANDS = 6
RETURN = "end the function with `return roles, barriers`: two dicts, generators by role and counts by barrier"


class NoProgram(Exception):
    """What came back is no program; the text tells the student what is wrong, ``line`` and ``text`` where."""

    def __init__(self, sentence: str, line: int = 0, text: str = ""):
        super().__init__(sentence)
        self.line, self.text = line, text


def recorded(result: Any) -> str:
    """The program that a function returned, ``(roles, barriers)``, as JSON.

    {"roles": {name: [[line, verb, operand, ...], ...]}, "barriers": {name: count}, "lines": {line: its text}}.
    Raises NoProgram, and what the generators raise.
    """
    if not isinstance(result, (tuple, list)) or len(result) != 2 or not all(isinstance(x, dict) for x in result):
        raise NoProgram(f"{'Nothing' if result is None else type(result).__name__} came back: {RETURN}.")
    roles, barriers = result
    for name, count in barriers.items():
        if not _short(name) or not _whole(count):
            raise NoProgram(
                f"Barrier {name!r:.60} needs a short name and a whole number for its count, not {count!r:.40}."
            )
    written: dict[str, list] = {}
    lines: dict[int, str] = {}
    for name, given in roles.items():
        if not _short(name):
            raise NoProgram(f"The name of a role must be a short text, not {name!r:.60}.")
        left = LONGEST - sum(map(len, written.values()))
        written[name] = list(_instructions(name, given, left, lines))
    counts = {name: int(count) for name, count in barriers.items()}
    text = json.dumps({"roles": written, "barriers": counts, "lines": lines})
    if len(text) > TEXT_LIMIT:
        raise NoProgram(f"The program takes {len(text):,} characters; at most {TEXT_LIMIT:,} are read.")
    return text


def _instructions(role: str, given: Any, left: int, lines: dict[int, str]) -> Iterator[list]:
    frame = getattr(given, "gi_frame", None)
    if frame is None and not isinstance(given, (list, tuple)):
        called = " (call it, as in producer())" if callable(given) else " (does it yield?)" if given is None else ""
        raise NoProgram(f"Role {role} must be a generator or a list of instructions, not {given!r:.40}{called}.")
    for number, item in enumerate(given):
        line, text = _line(given)
        if number == left:
            said = f"{role} had not ended after {LONGEST:,} instructions: is there a loop that never ends?"
            raise NoProgram(said, line, text)
        if not isinstance(item, (tuple, list)) or not 0 < len(item) <= OPERANDS or not all(map(_plain, item)):
            said = f"{role} yields {item!r:.60}: an instruction is a tuple of texts and numbers, ('wait', 'full0', 0)."
            raise NoProgram(said, line, text)
        lines[line] = text
        yield [line, *(part if type(part) is str else int(part) for part in item)]


def _line(generator: Any) -> tuple[int, str]:
    """The line of the innermost generator that has just yielded, and its text."""
    while getattr(generator, "gi_yieldfrom", None) is not None and hasattr(generator.gi_yieldfrom, "gi_frame"):
        generator = generator.gi_yieldfrom
    frame = getattr(generator, "gi_frame", None)
    if frame is None:
        return 0, ""
    return frame.f_lineno, linecache.getline(frame.f_code.co_filename, frame.f_lineno).rstrip("\n")[:200]


def _short(name: Any) -> bool:
    return type(name) is str and 0 < len(name) <= NAME


def _plain(value: Any) -> bool:
    return _short(value) or ((_whole(value) or isinstance(value, (bool, np.bool_))) and abs(int(value)) < 2**31)


def _whole(value: Any) -> bool:
    """NumPy's whole numbers are, too: a loop over an array gives those."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
