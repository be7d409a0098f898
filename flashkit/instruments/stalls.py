"""How long ptxas lets a warp wait in its main loop: the stall counts that it writes into every instruction.

Since Volta an instruction is 128 bits; bits 105 to 108 hold the cycles before the same warp may issue its next one
(Jia et al. 2018, "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2.1). Their sum over a loop is
what the loop takes a warp that has its scheduler for itself, but for waits of unknown length. Behind a matrix
instruction the warp waits for the matrix unit, whose time is counted elsewhere: of that, one cycle counts here. A
kernel with no register to spare is laid out in chains that wait for one another: there the sum is twice the
instructions' own cycles.
"""

from __future__ import annotations

import re

_LABEL = re.compile(r"\s*(\.L_\w+):")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);\s+/\* 0x[0-9a-f]+ \*/")
_UPPER = re.compile(r"\s*/\* 0x([0-9a-f]+) \*/\s*$")
_BRANCH = re.compile(r"\bBRA\b.*?(\.L_\w+)")
_MATRIX = re.compile(r"\b(?:[HQ]GMMA|HMMA|QMMA|UTC\w*MMA)\b")
_STALL_AT = 41  # in the upper 64 bits


def main_loop(sass: str) -> int:
    """Cycles of the loop with the most matrix instructions, else the longest; 0 without one.

    ``sass`` is what ``nvdisasm -c -hex`` prints.
    """
    texts, stalls, labels = _read(sass)
    ends: dict[int, int] = {}
    for number, text in enumerate(texts):
        branch = _BRANCH.search(text)
        if branch and labels.get(branch[1], number) < number:
            ends[labels[branch[1]]] = number
    loops = [(a, b) for a, b in ends.items() if not any(a < c and d <= b for c, d in ends.items())]
    best = max(loops, key=lambda loop: _weight(texts[loop[0] : loop[1] + 1]), default=None)
    if best is None:
        return 0
    inside = slice(best[0], best[1] + 1)
    return sum(1 if _MATRIX.search(text) else stall for text, stall in zip(texts[inside], stalls[inside], strict=True))


def _weight(texts: list[str]) -> tuple[int, int]:
    return sum(_MATRIX.search(text) is not None for text in texts), len(texts)


def _read(sass: str) -> tuple[list[str], list[int], dict[str, int]]:
    """Instructions, their stall counts, and where each label stands."""
    texts: list[str] = []
    stalls: list[int] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(texts)
        elif instruction := _INSTRUCTION.match(line):
            texts.append(instruction[1])
        elif len(stalls) < len(texts) and (upper := _UPPER.match(line)):
            stalls.append(int(upper[1], 16) >> _STALL_AT & 15)
    return texts, stalls, labels
