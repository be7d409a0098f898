"""Tries every order of events of a small barrier program, and says all that can go wrong: the simulator's judge.

Nothing is shared with the simulator but the program's data and the sentence about trip counts. Copies end in any order,
a role's products in theirs, and a role may be held up anywhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from reference.barrier_program import Program
from reference.pipeline_rules import trips_that_differ

STATES = 60_000


class TooLarge(Exception):
    """The program has more states than are worth trying."""


@dataclass(frozen=True)
class State:
    """Where each role is, which asynchronous operations are under way, and what barriers and tiles hold."""

    at: tuple[int, ...]
    finished: tuple[int, ...]  # products finished, by role
    flying: frozenset = frozenset()  # copies under way: (role, position)
    barriers: tuple = ()  # (phase, arrivals) by name
    named: tuple = ()  # (generation, roles that came) by name
    joined: tuple = ()  # the generation that a role waits for, or None
    tiles: tuple = ()  # (tile, block, copy, readers) with readers (role, number of its product)


@dataclass
class Found:
    """Kinds of mistakes that some order shows, and the phases that each wait or arrival saw in any of them."""

    kinds: set[str] = field(default_factory=set)
    phases: dict = field(default_factory=dict)

    def saw(self, what, phase: int) -> None:
        self.phases.setdefault(what, set()).add(phase)

    @property
    def luck(self) -> bool:
        return any(len(seen) > 1 for seen in self.phases.values())


class Explorer:
    def __init__(self, program: Program):
        self.program, self.found = program, Found()
        self.roles = list(program.roles.values())
        self.names, self.counts = list(program.barriers), list(program.barriers.values())
        signals = [i for role in self.roles for i in role if i.verb in ("sync", "signal")]
        self.needs = {i["name"]: i["roles"] for i in signals}
        self.turns = list(self.needs)
        everything = [i for role in self.roles for i in role]
        self.reads = Counter((i["tile"], i["block"]) for i in everything if i.verb == "matmul")
        self.copies = Counter((i["tile"], i["block"]) for i in everything if i.verb == "copy")
        self.filled = {i["tile"] for i in everything if i.verb == "copy"}
        self.trips = trips_that_differ(program)

    def explore(self) -> Found:
        n = len(self.roles)
        start = State((0,) * n, (0,) * n, frozenset(), tuple((0, 0) for _ in self.names),
                      tuple((0, 0) for _ in self.turns), (None,) * n)  # fmt: skip
        seen, todo = {start}, [start]
        while todo:
            state = todo.pop()
            following = list(self.following(state))
            if not following:
                stuck = any(at < len(role) for at, role in zip(state.at, self.roles, strict=True))
                if stuck or self.trips:
                    self.found.kinds.add("stuck" if stuck else "trip counts differ")
            for after in following:
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
            if len(seen) > STATES:
                raise TooLarge
        return self.found

    def following(self, state: State):
        for copy in state.flying:
            role, at = copy
            landed = replace(state, flying=state.flying - {copy})
            yield self.arrive(landed, self.roles[role][at]["barrier"], ("copy", role, at))
        for role in range(len(self.roles)):
            if state.finished[role] < self.queued(state, role):
                yield replace(state, finished=_set(state.finished, role, state.finished[role] + 1))
            if state.at[role] < len(self.roles[role]):
                after = self.step(state, role, self.roles[role][state.at[role]])
                if after is not None:
                    yield after

    def queued(self, state: State, role: int) -> int:
        return sum(i.verb == "matmul" for i in self.roles[role][: state.at[role]])

    def step(self, state: State, role: int, i) -> State | None:
        who = (role, state.at[role])
        on = replace(state, at=_set(state.at, role, state.at[role] + 1))
        if i.verb == "copy":
            return self.copy(on, who, i)
        if i.verb == "matmul":
            return self.read(on, role, self.queued(state, role), i)
        if i.verb == "drain":
            return on if self.queued(state, role) - state.finished[role] <= i["count"] else None
        if i.verb == "wait":
            phase, _ = state.barriers[self.names.index(i["barrier"])]
            if phase % 2 == i["phase"]:
                return None
            self.found.saw(who, phase)
            return on
        if i.verb == "arrive":
            return self.arrive(on, i["barrier"], who)
        return self.turn(state, on, role, who, i)

    def turn(self, state: State, on: State, role: int, who, i) -> State | None:
        at = self.turns.index(i["name"])
        generation, came = state.named[at]
        if i.verb == "sync" and state.joined[role] is not None:
            return replace(on, joined=_set(on.joined, role, None)) if generation > state.joined[role] else None
        self.found.saw(who, generation)
        opens = came + 1 == self.needs[i["name"]]
        now = (generation + 1, 0) if opens else (generation, came + 1)
        if i.verb == "signal":
            return replace(on, named=_set(on.named, at, now))
        return replace(state, named=_set(state.named, at, now), joined=_set(state.joined, role, generation))

    def arrive(self, state: State, barrier: str, who) -> State:
        at = self.names.index(barrier)
        phase, came = state.barriers[at]
        self.found.saw(who, phase)
        now = (phase + 1, 0) if came + 1 == self.counts[at] else (phase, came + 1)
        return replace(state, barriers=_set(state.barriers, at, now))

    # ---- tiles ----

    def issued(self, state: State, verb: str, tile: str, block: int) -> int:
        return sum(
            i.verb == verb and i["tile"] == tile and i["block"] == block
            for at, role in zip(state.at, self.roles, strict=True)
            for i in role[:at]
        )

    def copy(self, on: State, who, i) -> State:
        tile, block = i["tile"], i["block"]
        content = dict((t, rest) for t, *rest in on.tiles)
        if tile in content:
            before, by, readers = content[tile]
            reading = any(on.finished[role] <= number for role, number in readers)
            only = self.copies[tile, before] == 1
            to_come = only and self.issued(on, "matmul", tile, before) < self.reads[tile, before]
            if by in on.flying or reading or to_come:
                self.found.kinds.add("overwrite before last read")
        content[tile] = (block, who, ())
        return replace(on, flying=on.flying | {who}, tiles=_tiles(content))

    def read(self, on: State, role: int, number: int, i) -> State:
        tile, block = i["tile"], i["block"]
        content = dict((t, rest) for t, *rest in on.tiles)
        if tile not in self.filled or not self.copies[tile, block]:
            self.found.kinds.add("never refilled")
        if tile not in content or content[tile][0] != block:
            more = self.issued(on, "copy", tile, block) < self.copies[tile, block]
            self.found.kinds.add("read before full" if more else "overwrite before last read")
            return on
        now, by, readers = content[tile]
        if by in on.flying:
            self.found.kinds.add("read before full")
        content[tile] = (now, by, tuple(sorted((*readers, (role, number)))))
        return replace(on, tiles=_tiles(content))


def _set(values: tuple, at: int, value) -> tuple:
    return (*values[:at], value, *values[at + 1 :])


def _tiles(content: dict) -> tuple:
    return tuple(sorted((tile, *rest) for tile, rest in content.items()))
