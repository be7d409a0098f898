"""Mistakes of a barrier program, each as the repairs that undo it: what a repair makes right had that mistake.

A repair takes the student's own program, whatever its style, and gives candidates. It changes only what the mistake is
about, so that a program which a repair makes right on every case, and no other mistake's repair does, is named by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from reference.barrier_program import Instruction, Program, with_role
from reference.pipeline_rules import family

Repair = Callable[[Program], Iterable[Program]]


def _i(verb: str, *operands) -> Instruction:
    return Instruction(verb, operands)


@dataclass(frozen=True)
class Wiring:
    """Which barriers belong to a tile: ``full[tile, block]`` is its copy's, ``free[tile]`` says: fill it again."""

    full: dict[tuple[str, int], str]
    uses: dict[tuple[str, int], int]  # the how-manieth filling of the tile this block is
    free: dict[str, str]


def wirings(program: Program) -> list[Wiring]:
    """As the producer's waits have it, and as the consumers' arrivals have it: a mistake can spoil either."""
    full, uses, filled = {}, {}, Counter()
    for _, i in program.all("copy"):
        full[i["tile"], i["block"]] = i["barrier"]
        uses[i["tile"], i["block"]] = filled[i["tile"]]
        filled[i["tile"]] += 1
    signals = set(full.values())
    found = [_most(_waited_for(program, signals)), _most(_arrived_after(program, signals))]
    return [Wiring(full, uses, free) for n, free in enumerate(found) if free and free not in found[:n]]


def _most(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    counts: dict[str, Counter] = {}
    for tile, barrier in pairs:
        counts.setdefault(tile, Counter())[barrier] += 1
    return {tile: counter.most_common(1)[0][0] for tile, counter in counts.items()}


def _waited_for(program: Program, signals: set[str]) -> Iterator[tuple[str, str]]:
    for instructions in program.roles.values():
        last = None
        for i in instructions:
            if i.verb == "wait" and i["barrier"] not in signals:
                last = i["barrier"]
            if i.verb == "copy" and last is not None:
                yield i["tile"], last
                last = None


def _arrived_after(program: Program, signals: set[str]) -> Iterator[tuple[str, str]]:
    """(tile, barrier) for the first arrival after the tile's product is drained."""
    for instructions in program.roles.values():
        queued: list[str] = []
        drained: list[str] = []
        for i in instructions:
            if i.verb == "matmul":
                queued.append(i["tile"])
            if i.verb == "drain":
                done = max(0, len(queued) - i["count"])
                drained, queued = queued[:done], queued[done:]
            if i.verb == "arrive" and i["barrier"] not in signals and drained:
                yield drained.pop(0), i["barrier"]


def _groups(program: Program) -> list[list[str]]:
    """Roles alone, and all that multiply together: consumers run the same code."""
    consumers = [role for role, own in program.roles.items() if any(i.verb == "matmul" for i in own)]
    return [[role] for role in program.roles] + ([consumers] if len(consumers) > 1 else [])


def _each(program: Program, roles: list[str], change: Callable[[tuple[Instruction, ...]], list]) -> Program:
    for role in roles:
        program = with_role(program, role, change(program.roles[role]))
    return program


# ---- waits --------------------------------------------------------------------------------------------


def missing_wait(program: Program) -> Iterator[Program]:
    """A role never waits for what it needs: for full tiles before reading, or for free ones before filling again."""
    for wiring in wirings(program) or [Wiring({}, {}, {})]:
        for roles in _groups(program):
            yield _each(program, roles, lambda own, w=wiring: _with_reads_awaited(own, w))
            yield _each(program, roles, lambda own, w=wiring: _with_copies_awaited(own, w))


def reused_early(program: Program) -> Iterator[Program]:
    """The producer waits for some tiles to be free, but not for each that it fills again, or for another tile.

    What it never waits for in any case is a missing wait: :func:`waits_for_free` tells the two apart.
    """
    for wiring in wirings(program):
        for role, own in program.roles.items():
            yield with_role(program, role, _with_copies_awaited(own, wiring))
            yield with_role(program, role, _with_own_tile_awaited(own, wiring))


def waits_for_free(program: Program) -> bool:
    """Does a role that copies wait for anything?"""
    return any({"copy", "wait"} <= {i.verb for i in own} for own in program.roles.values())


def _with_reads_awaited(own: tuple[Instruction, ...], wiring: Wiring) -> list[Instruction]:
    def full(i: Instruction) -> tuple[str, int] | None:
        barrier = wiring.full.get((i["tile"], i["block"]))
        return (barrier, wiring.uses[i["tile"], i["block"]]) if barrier else None

    return _with_waits(own, "matmul", full)


def _with_copies_awaited(own: tuple[Instruction, ...], wiring: Wiring) -> list[Instruction]:
    def free(i: Instruction) -> tuple[str, int] | None:
        barrier = wiring.free.get(i["tile"])
        return (barrier, wiring.uses[i["tile"], i["block"]] - 1) if barrier else None  # a first use has none before it

    return _with_waits(own, "copy", free)


def _with_waits(
    own: tuple[Instruction, ...], verb: str, needed: Callable[[Instruction], tuple[str, int] | None]
) -> list[Instruction]:
    """Each instruction of this kind waits for the barrier and phase that it needs, where no wait stands before it."""
    made: list[Instruction] = []
    waited: set[str] = set()
    for i in own:
        if i.verb == "wait":
            waited.add(i["barrier"])
        if i.verb == verb and (need := needed(i)):
            barrier, phase = need
            if barrier not in waited and phase >= 0:
                made.append(_i("wait", barrier, phase % 2))
            waited.discard(barrier)
        made.append(i)
    return made


def _with_own_tile_awaited(own: tuple[Instruction, ...], wiring: Wiring) -> list[Instruction]:
    """The last wait for a free tile before each copy is for the tile of that copy."""
    made = list(own)
    last = None
    for n, i in enumerate(own):
        if i.verb == "wait" and i["barrier"] in wiring.free.values():
            last = n
        if i.verb == "copy" and last is not None and i["tile"] in wiring.free:
            made[last] = _i("wait", wiring.free[i["tile"]], made[last]["phase"])
            last = None
    return made


def wrong_phase(program: Program) -> Iterator[Program]:
    """The waits are there, with other parities: each barrier's waits alternate, from 0 or from 1."""
    signals = {i["barrier"] for _, i in program.all("copy")}
    families = {family(name) for name in program.barriers}
    full = {family(name) for name in signals}
    for roles in _groups(program):
        for chosen in [*({name} for name in sorted(families)), full, families - full, families]:
            for start in (0, 1):
                yield _each(program, roles, lambda own, c=chosen, s=start: _alternating(own, c, s))


def _alternating(own: tuple[Instruction, ...], families: set[str], start: int) -> list[Instruction]:
    made, seen = [], Counter()
    for i in own:
        if i.verb == "wait" and family(i["barrier"]) in families:
            phase = (seen[i["barrier"]] + start) % 2
            seen[i["barrier"]] += 1
            i = i if phase == i["phase"] else _i("wait", i["barrier"], phase)
        made.append(i)
    return made


# ---- arrivals -----------------------------------------------------------------------------------------


def released_early(program: Program) -> Iterator[Program]:
    """A tile is handed back before the product that reads it is drained."""
    for wiring in wirings(program):
        for roles in _groups(program):
            yield _each(program, roles, lambda own, w=wiring: _released_late(own, w, add=False))


def never_released(program: Program) -> Iterator[Program]:
    """A tile that was read is not handed back."""
    for wiring in wirings(program):
        for roles in _groups(program):
            yield _each(program, roles, lambda own, w=wiring: _released_late(own, w, add=True))


def _released_late(own: tuple[Instruction, ...], wiring: Wiring, add: bool) -> list[Instruction]:
    """Each arrival at a tile's barrier after its product is drained; with ``add`` also where there was none."""
    tile_of = {barrier: tile for tile, barrier in wiring.free.items()}
    queued: list[str] = []
    read, given = Counter(), Counter()
    held: list[Instruction] = []
    made: list[Instruction] = []
    for n, i in enumerate(own):
        if i.verb == "arrive" and i["barrier"] in tile_of:
            tile = tile_of[i["barrier"]]
            if not add and given[tile] + sum(h == i for h in held) >= read[tile] and _read_later(own[n:], queued, tile):
                held.append(i)
                continue
            given[tile] += 1
        made.append(i)
        if i.verb == "matmul":
            queued.append(i["tile"])
        if i.verb == "drain" and len(queued) > i["count"]:
            done = len(queued) - i["count"]
            read.update(queued[:done])
            made += _due(own[n + 1 :], queued[:done], wiring, given, held, add)
            queued = queued[done:]
    if held:
        made += [_i("drain", 0), *held]
    return made


def _read_later(ahead: tuple[Instruction, ...], queued: list[str], tile: str) -> bool:
    return tile in queued or any(i.verb == "matmul" and i["tile"] == tile for i in ahead)


def _due(
    ahead, tiles: list[str], wiring: Wiring, given: Counter, held: list[Instruction], add: bool
) -> list[Instruction]:
    made = []
    for tile in tiles:
        barrier = wiring.free.get(tile)
        waiting = next((h for h in held if h["barrier"] == barrier), None)
        if waiting is not None:
            held.remove(waiting)
            made.append(waiting)
        elif add and barrier and not _arrives_before_next_use(ahead, tile, wiring):
            made.append(_i("arrive", barrier))
        else:
            continue
        given[tile] += 1
    return made


def _arrives_before_next_use(ahead: tuple[Instruction, ...], tile: str, wiring: Wiring) -> bool:
    full = {barrier for (name, _), barrier in wiring.full.items() if name == tile}
    for i in ahead:
        if i.verb == "arrive" and i["barrier"] == wiring.free[tile]:
            return True
        if (i.verb == "matmul" and i["tile"] == tile) or (i.verb == "wait" and i["barrier"] in full):
            return False
    return False


def wrong_count(program: Program) -> Iterator[Program]:
    """A barrier's arrival count is not the number of arrivals that a phase has."""
    families = sorted({family(name) for name in program.barriers})
    signals = {family(i["barrier"]) for _, i in program.all("copy")}
    for chosen in [*({name} for name in families), set(families) - signals, signals, set(families)]:
        for count in (1, 2, 3):
            counts = {name: count if family(name) in chosen else n for name, n in program.barriers.items()}
            yield replace(program, barriers=counts)


# ---- trips --------------------------------------------------------------------------------------------


def producer_short(program: Program) -> Iterator[Program]:
    """Blocks that are read are not copied: the producer ends too soon."""
    copied = {(i["tile"], i["block"]) for _, i in program.all("copy")}
    missing = {place: barrier for place, barrier in _read_after(program).items() if place not in copied}
    idle = [role for role, own in program.roles.items() if not any(i.verb == "matmul" for i in own)]
    for wiring in (wirings(program) or [Wiring({}, {}, {})]) if missing else ():
        uses, more = Counter(i["tile"] for _, i in program.all("copy")), []
        for (tile, block), barrier in sorted(missing.items(), key=lambda item: item[0][1]):
            if uses[tile] and tile in wiring.free:
                more.append(_i("wait", wiring.free[tile], (uses[tile] + 1) % 2))
            more.append(_i("copy", tile, block, barrier))
            uses[tile] += 1
        for role in idle:
            yield with_role(program, role, [*program.roles[role], *more])


def _read_after(program: Program) -> dict[tuple[str, int], str]:
    """Each (tile, block) that is read, in order, with the barrier that its reader waited for last."""
    found: dict[tuple[str, int], str] = {}
    for own in program.roles.values():
        last = ""
        for i in own:
            last = i["barrier"] if i.verb == "wait" else last
            if i.verb == "matmul" and last:
                found.setdefault((i["tile"], i["block"]), last)
    return found


def not_handed_back(program: Program) -> Iterator[Program]:
    """A consumer with fewer blocks than another leaves the rest: it neither waits for them nor hands them back."""
    blocks = [(i["tile"], i["block"]) for _, i in program.all("copy")]
    for wiring in wirings(program):
        for roles in _groups(program):
            yield _each(program, roles, lambda own, w=wiring: _with_rest(own, blocks, w))


def _with_rest(own: tuple[Instruction, ...], blocks: list[tuple[str, int]], wiring: Wiring) -> list[Instruction]:
    read = {(i["tile"], i["block"]) for i in own if i.verb == "matmul"}
    given = Counter(i["barrier"] for i in own if i.verb == "arrive")
    rest: list[Instruction] = []
    for tile, block in blocks:
        barrier = wiring.free.get(tile)
        if (tile, block) in read or not read or barrier is None:
            continue
        if given[barrier] <= wiring.uses[tile, block]:
            rest += [_i("wait", wiring.full[tile, block], wiring.uses[tile, block] % 2), _i("arrive", barrier)]
    return [*own, *rest]


# ---- turns and overlap --------------------------------------------------------------------------------


def not_primed(program: Program) -> Iterator[Program]:
    """Nobody gives the first turn, or it is given to the wrong one."""
    for name, roles in {(i["name"], i["roles"]) for _, i in program.all("sync")}:
        for role in program.roles:
            own = program.roles[role]
            yield with_role(program, role, [_i("signal", name, roles), *own])
            if own and own[0].verb == "signal":
                yield with_role(program, role, [_i("signal", name, roles), *own[1:]])


def turn_kept(program: Program) -> Iterator[Program]:
    """The turn is passed on only after the softmax or a drain, not as soon as the products are queued."""
    for roles in _groups(program):
        yield _each(program, roles, _signals_early)


def _signals_early(own: tuple[Instruction, ...]) -> list[Instruction]:
    """Each signal directly after the last product before it."""
    made: list[Instruction] = []
    for i in own:
        at = len(made)
        if i.verb == "signal":
            while at and made[at - 1].verb in ("exp", "update", "drain", "arrive"):
                at -= 1
            at = at if at and made[at - 1].verb == "matmul" else len(made)
        made.insert(at, i)
    return made


def drained_all(program: Program) -> Iterator[Program]:
    """All products are drained before the exponentials, so that nothing runs under them."""
    for roles in _groups(program):
        late = _each(program, roles, _drains_late)
        for wiring in wirings(program):
            yield _each(late, roles, lambda own, w=wiring: _released_late(own, w, add=False))


def _drains_late(own: tuple[Instruction, ...]) -> list[Instruction]:
    """Where two products are queued, drain one before the exponentials and the other after them."""
    made, queued, owed = [], 0, False
    for i in own:
        queued = queued + 1 if i.verb == "matmul" else queued
        if i == _i("drain", 0) or (i.verb == "drain" and i["count"] == 0):
            if queued == 2:
                made.append(_i("drain", 1))
                owed, queued = True, 1
                continue
            queued = 0
        made.append(i)
        if i.verb == "exp" and owed:
            made.append(_i("drain", 0))
            owed, queued = False, 0
    return made


def registers_in_use(program: Program) -> Iterator[Program]:
    """O is rescaled and P written while the product that uses them runs: the drain before it is missing."""
    for roles in _groups(program):
        drained = _each(program, roles, _drained_before_updates)
        if drained != program:
            yield drained
            for wiring in wirings(program):
                yield _each(drained, roles, lambda own, w=wiring: _released_late(own, w, add=False))


def _drained_before_updates(own: tuple[Instruction, ...]) -> list[Instruction]:
    made, queued = [], 0
    for i in own:
        if i.verb == "matmul":
            queued += 1
        if i.verb == "drain":
            queued = min(queued, i["count"])
        if i.verb == "update" and queued:
            made.append(_i("drain", 0))
            queued = 0
        made.append(i)
    return made
