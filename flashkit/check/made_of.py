"""Is the compiled code made of what the exercise is about? Its copies, its products, its roles, and no spill.

How many arrivals a barrier is made for is not looked at, though a wrong count hangs: with an `empty` barrier for each
reader, or blocks that the readers take in turn, 1 is right. What a count should be only a run can tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from flashkit.exercises.contract import MadeOf
from flashkit.instruments.compile_gate import CompileResult
from flashkit.instruments.listing import Listing

MODEST = 56  # registers a thread that are enough to start copies
MISSING = {
    "TMA": "No TMA copy is in the compiled code: tiles must be loaded through tensor descriptors.",
    "cp.async": "No cp.async is in the compiled code: tiles must be copied to shared memory asynchronously.",
    "wgmma": "No wgmma is in the compiled code: a warpgroup multiplies at least 64 rows of 16-bit numbers.",
}


def judged(wanted: MadeOf | None, compiled: Sequence[CompileResult]) -> list[str] | None:
    """What the code lacks, a sentence each; None where nothing was compiled, or the compiler told no figures."""
    seen = [c for c in compiled if c.ok and c.listing is not None and c.spills is not None]
    if wanted is None or not seen or len(seen) < len(compiled):
        return None
    working = [c for c in seen if c.listing.whole.special] or seen  # a kernel that takes no exponentials only helps
    asked = [kind for kind in (wanted.copies, wanted.matrix) if kind]
    lacking = [MISSING[kind] for kind in asked if not all(_has(c.listing, kind, wanted) for c in working)]
    lacking += [f"{c.kernel} spills {c.spills} bytes a thread for sm_{c.arch}." for c in seen if c.spills]
    return lacking + [said for c in working for said in (*_workers(wanted, c), *_in_flight(wanted, c))]


def _has(listing: Listing, kind: str, wanted: MadeOf) -> bool:
    """Is the kernel made of it? Products count where the softmax is: in each loop that takes exponentials."""
    where = [loop for loop in listing.loops if loop.special] if kind == wanted.matrix else []
    return all(part.kinds[kind] for part in where or [listing.whole])


def _workers(wanted: MadeOf, compiled: CompileResult) -> list[str]:
    """The workers' warps must be those wanted, and the last, which only copies, must leave its registers to others."""
    if not wanted.workers:
        return []
    workers = compiled.roles
    warps = [warps for warps, _ in workers]
    if warps != list(wanted.workers):
        came = f"workers of {_listed(warps)}" if warps else "no workers"
        return [f"Beside the kernel's own role, workers of {_listed(wanted.workers)} are wanted; it has {came}."]
    if workers[-1][1] not in range(1, MODEST + 1):
        return [
            f"The producer asks for {workers[-1][1] or 'no number of'} registers: at most {MODEST} leave the rest room."
        ]
    return []


def _listed(warps: Sequence[int]) -> str:
    return ", ".join(map(str, warps)) + (" warp" if list(warps) == [1] else " warps")


def _in_flight(wanted: MadeOf, compiled: CompileResult) -> list[str]:
    if compiled.in_flight >= wanted.in_flight:
        return []
    return [f"Every wait is for all products, but {wanted.in_flight} should stay in flight at one of them."]


def told(wanted: MadeOf, compiled: Sequence[CompileResult]) -> str:
    """One line of what was found, for a report whose code is as wanted."""
    parts = [kind for kind in (wanted.copies, wanted.matrix) if kind]
    roles = [
        f"{warps} warp{'s' * (warps > 1)} with {registers} registers" for c in compiled for warps, registers in c.roles
    ]
    line = f"The code is made of {' and '.join(parts)}; nothing is spilled."
    return line + (f" Its workers: {', '.join(roles)}." if roles else "")
