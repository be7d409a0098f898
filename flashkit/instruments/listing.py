"""What a compiled kernel is made of, read from its PTX: matrix instructions, copies, load widths, and its inner loops.

PTX is what Triton and NVRTC hand to ptxas. It names the instructions that matter here as the handbooks do
(PTX ISA: mma.sync, wgmma.mma_async, tcgen05.mma, cp.async, cp.async.bulk.tensor), and is read in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flashkit.instruments import stalls

KINDS = {  # what a table shows: the name, and how the instruction starts
    "mma.sync": re.compile(r"mma\.sync"),
    "wgmma": re.compile(r"wgmma\.mma_async"),
    "tcgen05": re.compile(r"tcgen05\.mma"),
    "cp.async": re.compile(r"cp\.async\.c[ag]"),
    "TMA": re.compile(r"cp\.async\.bulk"),
}
SPECIAL = re.compile(r"(ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh|div)\.")  # the unit with 16 lanes an SM
COSTS = (  # cycles of one of the SM's four schedulers for a warp's instruction: 32 over the lanes that do it in a clock
    (re.compile(r"(setp|selp|max|min|cvt|shf|shl|shr|and|or|xor|not|lop3|prmt|bfe|popc|mad|mul\.(?:lo|hi|wide))\b"), 2),
    (re.compile(r"(add|sub|neg|abs)\.(s|u|b)\d"), 2),
    (re.compile(r"shfl"), 4),
    (re.compile(r"ex2\.approx\.f32"), 5),  # and a test and two products around it, for results that are not normal
    (re.compile(r"div\.full"), 9),
)
FREE = re.compile(r"(mov|cvta|bra|ret|pragma)\b")  # mostly gone once registers are assigned
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(r"^(?=(?:\.\w+\s+)*\.(?:entry|func)\b)", re.MULTILINE)
_NAME = re.compile(r"\.(?:entry|func)\s*(?:\([^)]*\)\s*)?([\w$]+)")
_INSTRUCTION = re.compile(r"\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)[\s;]")
_LABEL = re.compile(r"\s*(\$?[A-Za-z_]\w*):\s*(?://.*)?$")
_BRANCH = re.compile(r"\s*(?:@!?%p\d+\s+)?bra(?:\.uni)?\s+(\$?\w+);")
_GLOBAL = re.compile(r"ld\.(?:volatile\.)?global\S*?(?:\.v(\d))?\.[bufs](\d+)$")
_SHARED = re.compile(r"(?:ld|st)\.shared\S*?(?:\.v(\d))?\.[bufs](\d+)$")
_MATRICES = re.compile(r"(?:ld|st)matrix\S*?\.x(\d)")
_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)\.")
_CONSTANT = re.compile(r"mov\.b32\s+(%r\d+), (\d+);")
_BLOCK = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+)")
_DESCRIBED = re.compile(r"kind::(\w+)\s+\[[^]]*],\s*(?:\[[^]]*]|%rd\d+),\s*%rd\d+,\s*(%r\d+)")
DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32}  # K of a tcgen05 product: 32 bytes of each row
_COPIED = re.compile(r"\],\s*(?:0x([0-9a-f]+)|(\d+))")


@dataclass
class Mix:
    """Instructions of one warp, once through a piece of code.

    issued      all instructions that take an issue slot
    cycles      of the scheduler that issues them (CUDA C++ Programming Guide, "Arithmetic Instructions")
    special     of those, the ones for the special-function unit (exp2, reciprocal, ...)
    matrix      FLOP of matrix instructions (a warp's quarter of a warpgroup's, its share of a block's tcgen05)
    kinds       how often each instruction of KINDS stands there
    loads       bytes a thread -> how many loads (or asynchronous copies) of that width from global memory
    shuffles, barriers   exchanges between lanes, waits of the block
    shared      bytes that the warp's lanes move to and from shared memory
    """

    issued: int = 0
    cycles: int = 0
    special: int = 0
    matrix: float = 0.0
    kinds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    loads: dict[int, int] = field(default_factory=dict)
    shuffles: int = 0
    barriers: int = 0
    shared: int = 0


@dataclass
class Listing:
    """A whole kernel, and its innermost loops in the order of the code.

    scheduled   cycles that the main loop takes a warp alone, as ptxas laid it out (:mod:`flashkit.instruments.stalls`);
                0 when it is not known
    """

    whole: Mix
    loops: list[Mix]
    scheduled: int = 0

    @property
    def main(self) -> Mix | None:
        """The loop with the most matrix work, else the longest; None when the kernel has none."""
        return max(self.loops, key=lambda loop: (loop.matrix, loop.issued), default=None)


def read(ptx: str, sass: str = "", kernel: str = "") -> Listing:
    """Reads PTX text: of one kernel and what it calls, or of all kernels together, where none has that name.

    ``sass`` is the same as ``nvdisasm -c -hex`` shows it.
    """
    ptx = _of_kernel(_COMMENT.sub("", ptx), kernel)
    lines, constants, block = ptx.splitlines(), dict(_CONSTANT.findall(ptx)), _BLOCK.search(ptx)
    share = 32 / max(32, int(block[1])) if block else 1 / 4

    def part(some: list[str]) -> Mix:
        found = mix(some)
        found.matrix += share * sum(_tcgen05(line, constants) for line in some)
        return found

    loops = [part(lines[first : last + 1]) for first, last in _innermost(lines)]
    return Listing(part(lines), loops, stalls.main_loop(sass))


def _of_kernel(ptx: str, kernel: str) -> str:
    """The text without the functions that the kernel does not call; all of it where none has that name."""
    head, *functions = _FUNCTION.split(ptx)
    bodies = {name[1] if (name := _NAME.search(body)) else "": body for body in functions}
    kept, todo = {}, [kernel] if kernel in bodies else list(bodies)
    while todo:
        name = todo.pop()
        kept[name] = bodies[name]
        todo += [other for other in bodies if other not in kept and re.search(rf"\b{re.escape(other)}\b", kept[name])]
    return head + "".join(kept.values())


def mix(lines: Iterable[str]) -> Mix:
    """Counts the instructions of some lines of PTX, without the FLOP of tcgen05."""
    found = Mix()
    for line in lines:
        match = _INSTRUCTION.match(line)
        if match is None or FREE.match(match[1]):
            continue
        name = match[1]
        found.issued += 1
        found.special += SPECIAL.match(name) is not None
        found.shuffles += name.startswith("shfl.")
        found.barriers += name.startswith(("bar.", "barrier.", "wgmma.wait", "mbarrier.try_wait"))
        found.cycles += next((cost for pattern, cost in COSTS if pattern.match(name)), 1)
        found.shared += 32 * _shared(name)
        found.matrix += _flop(name)
        for kind, pattern in KINDS.items():
            found.kinds[kind] += pattern.match(name) is not None
        if width := _width(name, line):
            found.loads[width] = found.loads.get(width, 0) + 1
    return found


def _flop(name: str) -> float:
    shape = _SHAPE.search(name) if name.startswith(("mma.", "wgmma.mma")) else None
    if shape is None:
        return 0.0
    m, n, k = map(int, shape.groups())
    return 2.0 * m * n * k / (4 if name.startswith("wgmma") else 1)


def _tcgen05(line: str, constants: Mapping[str, str]) -> float:
    """FLOP of a tcgen05 product, which one thread starts for the whole block; its shape stands in its descriptor.

    PTX ISA, "tcgen05.mma instruction descriptor": bits 17 to 22 hold N / 8, bits 24 to 28 hold M / 16.
    """
    found = _DESCRIBED.search(line) if "tcgen05.mma" in line else None
    if found is None or found[2] not in constants:
        return 0.0
    described = int(constants[found[2]])
    return 2.0 * (described >> 24 & 31) * 16 * (described >> 17 & 63) * 8 * DEPTH.get(found[1], 16)


def _shared(name: str) -> int:
    """Bytes that a lane moves to or from shared memory."""
    if matrices := _MATRICES.match(name):
        return 4 * int(matrices[1])
    found = _SHARED.match(name)
    return int(found[1] or 1) * int(found[2]) // 8 if found else 0


def _width(name: str, line: str) -> int:
    """Bytes that each thread asks of global memory; 0 for what is no load."""
    if KINDS["cp.async"].match(name):
        copied = _COPIED.search(line)
        return int(copied[1], 16) if copied and copied[1] else int(copied[2]) if copied else 0
    found = _GLOBAL.match(name)
    return int(found[1] or 1) * int(found[2]) // 8 if found else 0


def _innermost(lines: list[str]) -> list[tuple[int, int]]:
    """First and last line of each loop (a label and the last branch back to it) that holds no other."""
    labels = {match[1]: number for number, line in enumerate(lines) if (match := _LABEL.match(line))}
    ends: dict[int, int] = {}
    for number, line in enumerate(lines):
        match = _BRANCH.match(line)
        if match and labels.get(match[1], number) < number:
            ends[labels[match[1]]] = number
    loops = list(ends.items())
    return [(a, b) for a, b in loops if not any((a, b) != (c, d) and a <= c and d <= b for c, d in loops)]
