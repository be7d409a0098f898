"""What a planted fault is: a base kernel, a patch, and the name that the check should give it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A kernel with a fault planted into it.

    fault     name in the bank; two names joined by " + " for a mutant with two faults
    base      ``solution``, or the variant (a file of variants/) that the patch is applied to
    patch     (old, new) pairs, each old occurring exactly once in the base
    exercise  id of the exercise it answers
    note      what a student may have thought, or why a mutant cannot be told from a right kernel
    unnamed   why the check cannot put a name to it; it must still be caught, and not be called anything else
    """

    fault: str
    base: str
    patch: tuple[tuple[str, str], ...]
    exercise: str = "03.heads"
    note: str = ""
    unnamed: str = ""

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(self.fault.split(" + "))

    @property
    def id(self) -> str:
        """Short and unique enough for a test's name: exercise, fault and base, and a digest of the patch."""
        digest = sum(ord(c) * (n + 1) for n, c in enumerate(repr(self.patch))) % 46656
        return f"{self.exercise} {self.fault} {self.base} {digest:x}".replace(" + ", "+").replace(" ", "-")
