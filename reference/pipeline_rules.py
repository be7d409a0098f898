"""What makes a barrier program right whatever the times: who can know that a tile is full, read, or free again.

Every event has a bit, and what a role *knows* is the set of events that certainly came before, as one integer: its own
earlier events, and what came before the arrivals that it has waited for. A read needs to know that the copy is done, a
copy that the last read is done. A wait that might see another phase, or an arrival that might count for another phase,
makes the program one of luck. Where nothing depends on luck, every order of events has the same result (Lamport 1978;
tests/reference/test_pipeline_interleavings.py tries all orders of small programs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from reference.barrier_program import Instruction, Program

KINDS = (
    "deadlock",
    "read before full",
    "overwrite before last read",
    "arrival count",
    "trip counts differ",
    "never refilled",
    "phase by luck",
)


class Mistake(Exception):
    """The first thing that is wrong, of a kind of KINDS; role and instruction are where it shows."""

    def __init__(self, kind: str, sentence: str, role: str = "", instruction: Instruction | None = None, waiting=()):
        super().__init__(sentence)
        self.kind, self.sentence, self.role, self.instruction, self.waiting = kind, sentence, role, instruction, waiting


class Arrival(NamedTuple):
    by: str
    event: int
    known: int


class Phase(NamedTuple):
    """A phase that is over: its arrivals' events, and all that is known to whoever has seen it."""

    events: int
    known: int


@dataclass
class Barrier:
    """An mbarrier: arrivals of the current phase, phases that are over, and the waits that passed in each phase."""

    name: str
    count: int
    came: list[Arrival] = field(default_factory=list)
    over: list[Phase] = field(default_factory=list)
    seen: dict[int, list[tuple[str, Instruction, int]]] = field(default_factory=dict)

    @property
    def phase(self) -> int:
        return len(self.over)

    def passes(self, parity: int) -> bool:
        return self.phase % 2 != parity

    def look(self, role: str, i: Instruction, known: int, event: int) -> int:
        """A wait passes: what it makes known. Raises Mistake if it could as well have passed two phases earlier."""
        if self.phase >= 2 and self.over[self.phase - 2].events & ~known:
            says = f"{role}'s wait for phase {i['phase']} of {self.name} could as well have passed two phases earlier"
            raise Mistake("phase by luck", f"{says}: it has not seen phase {self.phase - 2} end.", role, i)
        self.seen.setdefault(self.phase, []).append((role, i, event))
        return self.over[-1].known if self.over else 0

    def arrive(self, role: str, i: Instruction, known: int, event: int) -> bool:
        """One arrival; True when it ends the phase. Raises Mistake if it might have counted for the phase before."""
        if self.over and self.over[-1].events & ~known:
            says = (
                f"{self.name} ends a phase after {self.count} arrival{'s' * (self.count > 1)}, and {role} arrives once"
            )
            raise Mistake("arrival count", f"{says} more without knowing that phase {self.phase - 1} is over.", role, i)
        self.came.append(Arrival(role, event, known))
        if len(self.came) < self.count:
            return False
        done = _phase(self.came)
        for waiter, wait, looked in self.seen.get(self.phase, []):
            if not looked & done.known:
                says = f"{self.name} can go on to phase {self.phase + 1} before {waiter} has looked at it"
                raise Mistake("phase by luck", f"{says}: that wait passes by luck.", waiter, wait)
        self.over.append(done)
        self.came = []
        return True


@dataclass
class Named:
    """A named barrier: it opens each time ``count`` roles have come."""

    name: str
    count: int
    came: list[Arrival] = field(default_factory=list)
    over: list[Phase] = field(default_factory=list)

    def come(self, role: str, i: Instruction, known: int, event: int) -> bool:
        """One role comes; True when the barrier opens."""
        if i["roles"] != self.count:
            says = f"{role} comes to {self.name} as one of {i['roles']} roles, another as one of {self.count}"
            raise Mistake("arrival count", f"{says}.", role, i)
        if self.over and self.over[-1].events & ~known:
            says = f"{role} comes to {self.name} again without knowing that it has opened since"
            raise Mistake("phase by luck", f"{says}.", role, i)
        self.came.append(Arrival(role, event, known))
        if len(self.came) < self.count:
            return False
        self.over.append(_phase(self.came))
        self.came = []
        return True


def _phase(came: list[Arrival]) -> Phase:
    events = known = 0
    for arrival in came:
        events, known = events | arrival.event, known | arrival.known
    return Phase(events, known)


# ---- tiles in shared memory -----------------------------------------------------------------------------


@dataclass
class Content:
    """What a tile holds: a block, since which copy, its readers so far (role, end event), and reads still to come."""

    block: int
    by: str
    done: int
    to_come: int
    readers: list[tuple[str, int]] = field(default_factory=list)


class Tiles:
    """All tiles, empty at first. The program tells which reads and copies are still to come."""

    def __init__(self, program: Program):
        self.content: dict[str, Content] = {}
        self.reads = Counter((i["tile"], i["block"]) for _, i in program.all("matmul"))
        self.copies = Counter((i["tile"], i["block"]) for _, i in program.all("copy"))
        self.filled = {i["tile"] for _, i in program.all("copy")}
        self.past: Counter = Counter()

    def fill(self, role: str, i: Instruction, known: int, done: int) -> None:
        """A copy begins. Raises Mistake if the tile may still be read, or filled."""
        tile, block, before = i["tile"], i["block"], self.content.get(i["tile"])
        if before is not None and (why := self._in_use(tile, before, known)):
            raise Mistake("overwrite before last read", f"{role} copies block {block} into {tile} {why}.", role, i)
        self.past[tile, block] += 1
        only = self.copies[tile, block] == 1
        self.content[tile] = Content(block, role, done, self.reads[tile, block] if only else 0)

    def _in_use(self, tile: str, now: Content, known: int) -> str:
        if now.to_come and not self._again(tile, now.block):
            return f"before block {now.block} has been read"
        late = next((reader for reader, end in now.readers if not end & known), None)
        if late is not None:
            return f"while {late} may still read block {now.block}"
        return "" if now.done & known else f"while block {now.block} may still be arriving there"

    def _again(self, tile: str, block: int) -> bool:
        return self.past[tile, block] < self.copies[tile, block]

    def read(self, role: str, i: Instruction, known: int, done: int) -> None:
        """A product begins to read. Raises Mistake unless the block is certainly there."""
        tile, block, now = i["tile"], i["block"], self.content.get(i["tile"])
        if tile not in self.filled:
            raise Mistake("never refilled", f"{role} reads {tile}, which no copy ever fills.", role, i)
        if now is None or now.block != block:
            holds = "empty" if now is None else f"filled with block {now.block}"
            if not self.copies[tile, block]:
                says = f"{role} wants block {block} in {tile}, which is {holds} and never refilled with it"
                raise Mistake("never refilled", f"{says}.", role, i)
            kind = "read before full" if self._again(tile, block) else "overwrite before last read"
            raise Mistake(kind, f"{role} reads block {block} in {tile}, which is {holds}.", role, i)
        if not now.done & known:
            says = f"{role} reads block {block} in {tile} without having waited for its copy"
            raise Mistake("read before full", f"{says}.", role, i)
        now.readers.append((role, done))
        now.to_come -= bool(now.to_come)


# ---- registers of one role ------------------------------------------------------------------------------


class Registers:
    """S, P and O of one role: a product writes or reads them as long as it is not drained."""

    def __init__(self, instructions: Iterable[Instruction]):
        self.softmax = Counter((i.verb, i["block"]) for i in instructions if i.verb in ("exp", "update"))
        self.made: Counter = Counter()
        self.S: tuple[int, int] | None = None  # block, end of its product
        self.O: list[tuple[int, int]] = []

    def multiply(self, role: str, i: Instruction, done: int) -> None:
        block = i["block"]
        if i["product"] == "S":
            if self.S is not None and (left := self._left(self.S[0])):
                says = f"{role} queues S{block} into the registers of S{self.S[0]} before its {left}"
                raise Mistake("overwrite before last read", f"{says}.", role, i)
            self.S = block, done
        if i["product"] == "O":
            if left := self._left(block):
                raise Mistake("read before full", f"{role} multiplies P{block} with V before its {left}.", role, i)
            self.O.append((block, done))

    def _left(self, block: int) -> str:
        """What the softmax of this block still has to do."""
        return next((verb for verb in ("exp", "update") if self.made[verb, block] < self.softmax[verb, block]), "")

    def exp(self, role: str, i: Instruction, known: int) -> None:
        block = i["block"]
        if self.S is None or self.S[0] != block:
            held = "nothing" if self.S is None else f"S{self.S[0]}"
            raise Mistake(
                "read before full", f"{role} wants the exponentials of S{block}, but S holds {held}.", role, i
            )
        if not self.S[1] & known:
            says = f"{role} reads S{block} before its product is drained"
            raise Mistake("read before full", f"{says}.", role, i)
        self.made["exp", block] += 1

    def update(self, role: str, i: Instruction, known: int) -> None:
        block = i["block"]
        if not self.made["exp", block]:
            raise Mistake("read before full", f"{role} writes P{block} before its exponentials.", role, i)
        late = next((before for before, done in self.O if not done & known), None)
        if late is not None:
            says = f"{role} rescales O and writes P{block} while the product of P{late} and V may still use them"
            raise Mistake("overwrite before last read", f"{says}: drain it first.", role, i)
        self.made["update", block] += 1


# ---- trip counts ----------------------------------------------------------------------------------------


def family(tile: str) -> str:
    """The tensor that a tile belongs to: "K" of "K0"."""
    return tile.rstrip("0123456789")


def trips_that_differ(program: Program) -> str:
    """One sentence without a full stop if the blocks copied are not the blocks read; "" if they are."""
    copied, read = _blocks(program.all("copy")), _blocks(program.all("matmul"))
    for tensor in copied:
        if set(copied[tensor]) != set(read.get(tensor, ())):
            tells = f"{len(set(copied[tensor]))} {tensor} blocks are copied, {len(set(read.get(tensor, ())))} are read"
            odd = sorted(set(copied[tensor]) ^ set(read.get(tensor, ())))
            return f"{tells}: they differ in block {', '.join(map(str, odd[:4]))}"
    return ""


def _blocks(found: list[tuple[str, Instruction]]) -> dict[str, list[int]]:
    blocks: dict[str, list[int]] = {}
    for _, i in found:
        blocks.setdefault(family(i["tile"]), []).append(i["block"])
    return blocks
