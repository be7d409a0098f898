"""The event simulator: runs a barrier program, and gives its timeline or the first mistake in it.

Units work beside each other: the copy engine, the tensor core, the exp unit and the ALU, each one job at a time in the
order of asking, and each role issues its own instructions in order: :mod:`reference.barrier_program` says which.

Whether a program is right does not depend on the times: :mod:`reference.pipeline_rules` follows what each role can
*know*, so a program that is only lucky at the given times is not right. Times are in any unit, the same for all.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from reference.barrier_program import Instruction, Program, ProgramError, read
from reference.pipeline_rules import KINDS, Barrier, Mistake, Named, Registers, Tiles, trips_that_differ

__all__ = [
    "Diagnosis",
    "Flip",
    "KINDS",
    "Program",
    "ProgramError",
    "Run",
    "Span",
    "Times",
    "read",
    "simulate",
]

UNITS = {"copy": "copy engine", "matmul": "tensor core", "exp": "exp unit", "update": "ALU"}


@dataclass(frozen=True)
class Times:
    """How long one copy, product, block of exponentials and update take their unit. Same unit for all.

    ``latency`` passes from a product's end until its role can know of it; the tensor core goes on meanwhile.
    """

    copy: float = 2.0
    matmul: float = 5.0
    exp: float = 0.0
    update: float = 0.0
    latency: float = 0.0


@dataclass(frozen=True)
class Span:
    """Something that took time: ``lane`` is a unit ("copy engine", ...) or, for waiting, the role itself."""

    lane: str
    role: str
    start: float
    end: float
    verb: str
    what: str
    block: int = -1
    tile: str = ""


@dataclass(frozen=True)
class Flip:
    """A barrier's phase ``phase`` was over at ``time``, by the last arrival of ``by``."""

    barrier: str
    phase: int
    time: float
    by: str


@dataclass(frozen=True)
class Waiting:
    """A role that waits in vain: for what, and at which phase."""

    role: str
    instruction: Instruction
    says: str


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong. ``kind`` is one of KINDS; role and instruction are where it shows; ``waiting`` for deadlocks."""

    kind: str
    sentence: str
    time: float
    role: str = ""
    instruction: Instruction | None = None
    waiting: tuple[Waiting, ...] = ()


@dataclass
class Run:
    """What came of a program: spans and flips up to its end or its first mistake, and the mistake, if there is one."""

    program: Program
    times: Times
    spans: list[Span] = field(default_factory=list)
    flips: list[Flip] = field(default_factory=list)
    diagnosis: Diagnosis | None = None

    @property
    def makespan(self) -> float:
        """When the last unit falls idle."""
        return max((span.end for span in self.spans), default=0.0)

    def busy(self, lane: str) -> float:
        """Time that a unit works."""
        return sum(span.end - span.start for span in self.spans if span.lane == lane)


def simulate(
    roles: Mapping[str, Iterable] | Program, barriers: Mapping[str, int] | None = None, times: Times | None = None
) -> Run:
    """Run a program: its timeline, and the first mistake if there is one. Deterministic.

    ``roles`` maps names to generators or lists of instructions (or is a Program), ``barriers`` names to arrival counts;
    in the default ``times`` a copy takes 2 and a product 5. Raises ProgramError for what is no program.
    """
    program = roles if isinstance(roles, Program) else read(roles, barriers or {})
    return _Engine(program, times or Times()).run()


@dataclass
class _Role:
    """Where a role is, what it knows (a bit an event), and its products: (end event, what its end makes known)."""

    name: str
    instructions: tuple[Instruction, ...]
    at: int = 0
    known: int = 0
    products: list[tuple[int, int]] = field(default_factory=list)
    finished: int = 0
    busy: bool = False
    since: float | None = None  # when it began to wait
    generation: int | None = None  # of the named barrier that it has come to

    @property
    def now(self) -> Instruction | None:
        return self.instructions[self.at] if self.at < len(self.instructions) else None


class _Engine:
    def __init__(self, program: Program, times: Times):
        self.result = Run(program, times)
        self.roles = [_Role(name, instructions) for name, instructions in program.roles.items()]
        self.barriers = {name: Barrier(name, number) for name, number in program.barriers.items()}
        self.named: dict[str, Named] = {}
        self.tiles = Tiles(program)
        self.registers = {role.name: Registers(role.instructions) for role in self.roles}
        self.free = dict.fromkeys(UNITS.values(), 0.0)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order, self.bits = count(), count()
        self.time = 0.0

    def run(self) -> Run:
        try:
            while True:
                while any([self._advance(role) for role in self.roles]):
                    pass
                if not self.events:
                    break
                self.time, _, happen = heapq.heappop(self.events)
                happen()
            self._end()
        except Mistake as mistake:
            self.result.diagnosis = Diagnosis(
                mistake.kind, mistake.sentence, self.time, mistake.role, mistake.instruction, mistake.waiting
            )
        return self.result

    def _advance(self, role: _Role) -> bool:
        """Executes what the role can execute now; whether that was anything."""
        before = role.at
        while role.now is not None and not role.busy:
            instruction = role.now
            role.since = self.time if role.since is None else role.since
            if not getattr(self, f"_{instruction.verb}")(role, instruction):
                break
            if self.time > role.since:
                self._span(role.name, role, role.since, self.time, instruction)
            role.at, role.since = role.at + 1, None
        return role.at > before

    # ---- one method a verb: True once it is done ----

    def _copy(self, role: _Role, i: Instruction) -> bool:
        begun, done = self._event(), self._event()
        role.known |= begun
        self.tiles.fill(role.name, i, role.known, done)
        known = role.known | done
        self._work(role, i, lambda: self._arrived(i["barrier"], done, known, role.name, i))
        return True

    def _matmul(self, role: _Role, i: Instruction) -> bool:
        begun, done = self._event(), self._event()
        role.known |= begun
        self.tiles.read(role.name, i, role.known, done)
        self.registers[role.name].multiply(role.name, i, done)
        earlier = role.products[-1][1] if role.products else 0
        role.products.append((done, role.known | done | earlier))

        def finish():
            role.finished += 1

        self._work(role, i, finish)
        return True

    def _drain(self, role: _Role, i: Instruction) -> bool:
        if len(role.products) - role.finished > i["count"]:
            return False
        done = len(role.products) - i["count"]
        if done > 0:
            role.known |= role.products[done - 1][1]  # which holds what its earlier products make known
        return True

    def _exp(self, role: _Role, i: Instruction) -> bool:
        getattr(self.registers[role.name], i.verb)(role.name, i, role.known)
        role.known |= self._event()
        role.busy = True

        def finish():
            role.busy = False

        self._work(role, i, finish)
        return True

    _update = _exp

    def _wait(self, role: _Role, i: Instruction) -> bool:
        barrier = self.barriers[i["barrier"]]
        if not barrier.passes(i["phase"]):
            return False
        begun = self._event()
        role.known |= barrier.look(role.name, i, role.known, begun) | begun
        return True

    def _arrive(self, role: _Role, i: Instruction) -> bool:
        event = self._event()
        role.known |= event
        self._arrived(i["barrier"], event, role.known, role.name, i)
        return True

    def _sync(self, role: _Role, i: Instruction) -> bool:
        if role.generation is None:
            role.generation = self._come(role, i)
        named = self.named[i["name"]]
        if role.generation >= len(named.over):
            return False
        role.known |= named.over[role.generation].known
        role.generation = None
        return True

    def _signal(self, role: _Role, i: Instruction) -> bool:
        self._come(role, i)
        return True

    # ---- what they share ----

    def _event(self) -> int:
        return 1 << next(self.bits)

    def _come(self, role: _Role, i: Instruction) -> int:
        named = self.named.setdefault(i["name"], Named(i["name"], i["roles"]))
        event = self._event()
        role.known |= event
        generation = len(named.over)
        if named.come(role.name, i, role.known, event):
            self.result.flips.append(Flip(i["name"], generation, self.time, role.name))
        return generation

    def _arrived(self, name: str, event: int, known: int, role: str, i: Instruction) -> None:
        barrier = self.barriers[name]
        phase = barrier.phase
        if barrier.arrive(role, i, known, event):
            self.result.flips.append(Flip(name, phase, self.time, role))

    def _work(self, role: _Role, i: Instruction, then: Callable[[], None]) -> None:
        """Queues a job on the instruction's unit; ``then`` happens at its end."""
        unit = UNITS[i.verb]
        start = max(self.time, self.free[unit])
        end = self.free[unit] = start + getattr(self.result.times, i.verb)
        self._span(unit, role, start, end, i)
        known = end + self.result.times.latency if i.verb == "matmul" else end
        heapq.heappush(self.events, (known, next(self.order), then))

    def _span(self, lane: str, role: _Role, start: float, end: float, i: Instruction) -> None:
        block = i["block"] if i.verb in UNITS else -1
        tile = i["tile"] if i.verb in ("copy", "matmul") else ""
        self.result.spans.append(Span(lane, role.name, start, end, i.verb, _label(i), block, tile))

    # ---- the end ----

    def _end(self) -> None:
        stuck = [role for role in self.roles if role.now is not None]
        trips = trips_that_differ(self.result.program)
        if not stuck:
            if trips:
                raise Mistake("trip counts differ", f"{trips}.")
            return
        waiting = tuple(Waiting(role.name, role.now, self._waits_for(role)) for role in stuck)
        kind, why = self._why_stuck(stuck, trips)
        told = "; ".join(w.says for w in waiting)
        raise Mistake(kind, f"{why}{told}.", stuck[0].name, stuck[0].now, waiting)

    def _waits_for(self, role: _Role) -> str:
        i = role.now
        if i.verb == "wait":
            barrier = self.barriers[i["barrier"]]
            came = f"{len(barrier.came)} of {barrier.count} arrivals"
            return f"{role.name} waits for phase {i['phase']} of {barrier.name} ({came} in phase {barrier.phase})"
        named = self.named[i["name"]]
        return f"{role.name} waits at {named.name} ({len(named.came)} of {named.count} have come)"

    def _why_stuck(self, stuck: list[_Role], trips: str) -> tuple[str, str]:
        """The kind of a deadlock, and what goes before the list of who waits."""
        if trips:
            return "trip counts differ", f"{trips}. So "
        waited = [self.barriers[role.now["barrier"]] for role in stuck if role.now.verb == "wait"]
        for barrier in waited:
            if barrier.came:
                by = ", ".join(dict.fromkeys(arrival.by for arrival in barrier.came))
                here = (
                    f"{len(barrier.came)} of {barrier.count} arrivals have come in its phase {barrier.phase}, from {by}"
                )
                return "arrival count", f"{barrier.name} stays as it is: {here}. "
        for barrier in waited:
            if not any(self._arrives(role, barrier.name) for role in self.roles):
                return (
                    "never refilled",
                    f"Nobody arrives at {barrier.name} (any more), so no tile behind it is filled. ",
                )
        return "deadlock", "Nobody can go on: "

    def _arrives(self, role: _Role, barrier: str) -> bool:
        ahead = role.instructions[role.at :]
        return any(i.verb in ("arrive", "copy") and i["barrier"] == barrier for i in ahead)


def _label(i: Instruction) -> str:
    """A span's text: what the unit works on, or what is waited for."""
    if i.verb == "copy":
        return f"{i['tile'].rstrip('0123456789')}{i['block']}"
    if i.verb == "matmul":
        return f"{i['product']}{i['block']}"
    if i.verb in ("exp", "update"):
        return f"{i.verb} {i['block']}"
    if i.verb == "wait":
        return f"{i['barrier']} phase {i['phase']}"
    return "drain" if i.verb == "drain" else i["name"]
