"""Barrier programs of a pipelined kernel as data: roles, their instructions, and the barriers between them.

A *role* (a producer warp, a consumer warpgroup) is a list or generator of instructions, which are plain tuples:

``"copy", tile, block, barrier``   the copy engine fills ``tile`` with ``block``, then arrives at ``barrier``; the
                                   role goes on at once (TMA)
``"matmul", product, tile, block`` queues a product that reads ``block`` from ``tile``; the role goes on at once
                                   (WGMMA). "S" is Q K_j^T, "O" is O + P V_j; others are without registers
``"drain", n``                     until at most n of the role's own products are unfinished (wgmma.wait_group)
``"exp", block``                   the exponentials of S_block, on the exp unit
``"update", block``                rescale O and write P over its old registers, on the ALU
``"wait", barrier, phase``         until the phase of this parity is over (mbarrier.try_wait.parity)
``"arrive", barrier``              one arrival
``"sync", name, roles``            a named barrier: until so many roles have come (bar.sync)
``"signal", name, roles``          come to a named barrier without waiting (bar.arrive)

An mbarrier has an arrival count. When so many have arrived its phase is over and the next begins; the first has number
0. ``wait`` looks only at the parity: it passes when the phase before the current one has that parity, so ``wait 1``
passes on a new barrier. (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

LONGEST = 4000  # instructions of one role
ROLES = 16


@dataclass(frozen=True)
class Verb:
    """An instruction's operands, by kind and in order, and an example."""

    operands: tuple[str, ...]
    example: tuple


VERBS = {
    "copy": Verb(("tile", "block", "barrier"), ("copy", "K0", 0, "full0")),
    "matmul": Verb(("product", "tile", "block"), ("matmul", "S", "K0", 0)),
    "drain": Verb(("count",), ("drain", 0)),
    "exp": Verb(("block",), ("exp", 0)),
    "update": Verb(("block",), ("update", 0)),
    "wait": Verb(("barrier", "phase"), ("wait", "full0", 0)),
    "arrive": Verb(("barrier",), ("arrive", "empty0")),
    "sync": Verb(("name", "roles"), ("sync", "turn0", 2)),
    "signal": Verb(("name", "roles"), ("signal", "turn0", 2)),
}
NAMES = ("tile", "product", "barrier", "name")  # operands that are text; the others are whole numbers


class ProgramError(ValueError):
    """A program that cannot be run; its text is one line that says which instruction, and what would be right.

    ``line`` is where a student's program yields it (0: not known).
    """

    line = 0


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``line`` is where a student's program yields it (0: not known)."""

    verb: str
    operands: tuple
    line: int = 0

    def __str__(self) -> str:
        return ", ".join(repr(part) if isinstance(part, str) else str(part) for part in (self.verb, *self.operands))

    def __getitem__(self, kind: str):
        """An operand by its kind, such as ``instruction["block"]``."""
        return self.operands[VERBS[self.verb].operands.index(kind)]


@dataclass(frozen=True)
class Program:
    """Roles by name, in the order in which ties are broken, and the arrival counts of the mbarriers by name."""

    roles: Mapping[str, tuple[Instruction, ...]]
    barriers: Mapping[str, int]

    def all(self, verb: str) -> list[tuple[str, Instruction]]:
        """(role, instruction) of each instruction of this kind, role by role."""
        return [(role, i) for role, instructions in self.roles.items() for i in instructions if i.verb == verb]


def read(roles: Mapping[str, Iterable], barriers: Mapping[str, int]) -> Program:
    """The program of these roles (lists or generators of tuples) and barrier counts. Raises ProgramError."""
    if not isinstance(roles, Mapping) or not isinstance(barriers, Mapping):
        raise ProgramError("A program is two dicts: roles by name, and the arrival count of each barrier by name.")
    if len(roles) > ROLES:
        raise ProgramError(f"A program has at most {ROLES} roles, but this one has {len(roles)}.")
    for name, count in barriers.items():
        if not isinstance(name, str) or type(count) is not int or count < 1:
            raise ProgramError(
                f"Barrier {name!r} must have a text for its name and a count of 1 or more, not {count!r}."
            )
    return Program(
        {str(role): _instructions(str(role), given, barriers) for role, given in roles.items()}, dict(barriers)
    )


def _instructions(role: str, given: Iterable, barriers: Mapping[str, int]) -> tuple[Instruction, ...]:
    if not hasattr(given, "__iter__") or isinstance(given, (str, Mapping)):
        called = ": call it, as in producer()" if callable(given) else ""
        raise ProgramError(f"Role {role} must be a generator or a list of instructions, not {given!r:.40}{called}.")
    found = [_instruction(role, item, barriers) for item in islice(given, LONGEST + 1)]
    if len(found) > LONGEST:
        raise ProgramError(f"{role} had not ended after {LONGEST:,} instructions: is there a loop that never ends?")
    return tuple(found)


def _instruction(role: str, item, barriers: Mapping[str, int]) -> Instruction:
    try:
        return _checked(role, item, barriers)
    except ProgramError as error:
        error.line = item.line if isinstance(item, Instruction) else 0
        raise


def _checked(role: str, item, barriers: Mapping[str, int]) -> Instruction:
    line = item.line if isinstance(item, Instruction) else 0
    parts = (item.verb, *item.operands) if isinstance(item, Instruction) else item
    if not isinstance(parts, (tuple, list)) or not parts or not isinstance(parts[0], str):
        raise ProgramError(f"{role} yields {item!r:.60}: an instruction is a tuple such as ('wait', 'full0', 0).")
    verb, *operands = parts
    if verb not in VERBS:
        near = difflib.get_close_matches(verb, VERBS, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(VERBS)}."
        raise ProgramError(f"{role} yields {parts!r:.60}: there is no instruction {verb!r}; {meant}")
    wanted = VERBS[verb]
    kinds_fit = len(operands) == len(wanted.operands) and all(map(_fits, wanted.operands, operands))
    if not kinds_fit:
        raise ProgramError(
            f"{role} yields {parts!r:.60}: {verb!r} wants {', '.join(wanted.operands)}, such as {wanted.example!r}."
        )
    made = Instruction(verb, tuple(operands), line)
    if "barrier" in wanted.operands and made["barrier"] not in barriers:
        known = ", ".join(barriers) or "none"
        raise ProgramError(f"{role} yields {parts!r:.60}: no barrier has that name; there are {known:.80}.")
    return made


def _fits(kind: str, value) -> bool:
    if kind in NAMES:
        return isinstance(value, str)
    return isinstance(value, int) and value >= (1 if kind == "roles" else 0) and (kind != "phase" or value <= 1)


def with_role(program: Program, role: str, instructions: Iterable[Instruction]) -> Program:
    """The program with another list of instructions for one role."""
    return replace(program, roles={**program.roles, role: tuple(instructions)})
