"""The judge's side of the sandbox: runs a submission's cells and calls there, and outlives whatever they do.

A cell or a call that ends its process, hangs or floods costs that cell or that exercise. A sandbox in which anything
went wrong is thrown away, and the next exercise gets a new one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flashkit.grading.sandbox import Sandbox, SandboxLost
from flashkit.grading.settings import Settings
from flashkit.runtime import wire
from flashkit.runtime.call import Call, Outcome, Problem

GRACE = 10.0  # seconds beyond a limit that the child itself keeps by an alarm, and tells, on a busy machine too
LOST_CELLS = 3  # so many cells of one submission may end their process before the judge gives up


@dataclass(frozen=True)
class CodeCell:
    """Code of a submission: ``name`` is what the student knows it by, and the file it runs from."""

    name: str
    source: str


@dataclass
class Room:
    """One submission's sandbox, renewed when spoilt. ``problems``: cell number -> what went wrong when it ran."""

    cells: Sequence[CodeCell]
    settings: Settings
    problems: dict[int, Problem] = field(default_factory=dict)
    started: int = 0
    start_seconds: float = 0.0
    _lost: set[int] = field(default_factory=set)
    _sandbox: Sandbox | None = None

    def enter(self, upto: int, function: str) -> Child:
        """A child that has run the cells before ``upto``. Never raises for what they do: see Child.problem."""
        while True:
            child = self._begin(upto, function)
            if child.lost_cell is None:
                return child
            self._lost.add(child.lost_cell)
            self.problems[child.lost_cell] = child.problem
            if len(self._lost) > LOST_CELLS:
                return child

    def _begin(self, upto: int, function: str) -> Child:
        numbers = [n for n in range(upto) if n not in self._lost]
        child = Child(self, function)
        try:
            child.open(self._running().begin())
            child.prepare(numbers)
        except SandboxLost as lost:
            child.problem = Problem("crashed", str(lost))
            self.leave(child)
        return child

    def _running(self) -> Sandbox:
        if self._sandbox is None:
            before = time.monotonic()
            self._sandbox = Sandbox(self.settings.limits)
            self.started += 1
            self.start_seconds += time.monotonic() - before
        return self._sandbox

    def leave(self, child: Child) -> str:
        """Ends a child; says how it had ended by itself, "" if it had not."""
        if child.channel is not None:
            child.channel.close()
            child.channel = None
        if self._sandbox is None:
            return ""
        how, clean = self._sandbox.end()
        if not clean:
            self.close()
        return how

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None


class Child:
    """One exercise's process. ``problem`` is set once it is of no more use; ``student_seconds`` is what calls took."""

    def __init__(self, room: Room, function: str):
        self.room, self.function = room, function
        self.channel = None
        self.problem: Problem | None = None
        self.lost_cell: int | None = None
        self.kernels: list[dict[str, Any]] = []
        self.claims: dict[int, list[Any]] = {}  # by architecture, where launch choices are judged
        self.student_seconds = 0.0
        self._asked: Call | None = None

    def open(self, channel) -> None:
        self.channel = channel

    def prepare(self, numbers: list[int]) -> None:
        """Runs the cells with these numbers; afterwards ``problem`` says why there is no function, if there is none."""
        seconds = self.room.settings.seconds_per_cell
        cells = [[self.room.cells[n].name, self.room.cells[n].source] for n in numbers]
        current, before = None, time.monotonic()
        until = before + self.room.settings.seconds_per_exercise
        try:
            wire.send(self.channel, {"cells": cells, "function": self.function, "seconds": seconds})
            said = {}
            for _ in range(2 * len(numbers) + 1):  # a cell reports itself, and perhaps that it failed
                said, _ = wire.receive(self.channel, min(until, time.monotonic() + seconds + GRACE))
                if "ready" in said:
                    break
                current = numbers[int(said.get("cell", said.get("failed")))]
                if "failed" in said:
                    self.room.problems[current] = wire.read_problem(said["problem"])
        except (wire.WireError, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            self.lost_cell = current
            self.problem = self._lost(error, seconds)
            return
        finally:
            self.student_seconds += time.monotonic() - before
        if said.get("ready") is not True:
            self.problem = self._no_function(numbers)

    def ask(self, call: Call, undefined: bool = True, kernels: bool = False) -> None:
        """Sends a call; :meth:`answer` waits for what comes of it. Neither raises for what student code does."""
        self._asked = call
        header, arrays = wire.call_header(call)
        try:
            if self.problem is None:
                wire.send(self.channel, {**header, "undefined": undefined, "kernels": kernels}, arrays)
        except OSError as error:
            self.problem = self._lost(error, call.seconds)

    def answer(self) -> Outcome:
        """The outcome of the last call; ``kernels`` then holds what it launched, if it was asked for."""
        call = self._asked
        if self.problem is not None:
            return Outcome(problem=self.problem)
        try:
            said, outputs = wire.receive(self.channel, time.monotonic() + call.seconds + GRACE)
            outcome = wire.read_outcome(said, outputs, call.returns)
            self.kernels = said["kernels"][:4] if isinstance(said.get("kernels"), list) else []
        except (wire.WireError, OSError) as error:
            self.problem = self._lost(error, call.seconds)
            return Outcome(problem=self.problem)
        self.student_seconds += max(0.0, min(outcome.seconds, call.seconds))
        return outcome

    def _lost(self, error: Exception, seconds: float) -> Problem:
        how = self.room.leave(self)
        if str(error) == "too slow":
            how = how or f"It had not ended after {seconds:g} s, and the time limit could not stop it from inside."
        elif not how:
            how = "What came back from the process that runs it was no answer."
        return Problem("crashed", how)

    def _no_function(self, numbers: list[int]) -> Problem:
        """The problem of the last cell that failed and mentions the function, else that it is missing."""
        for n in sorted(self.room.problems, reverse=True):
            if f"def {self.function}" in self.room.cells[n].source:
                return self.room.problems[n]
        return Problem("crashed", f"There is no function `{self.function}`: no cell before the check defines it.")
