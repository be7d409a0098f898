"""A table of blocks and quantities that fills step by step: one column a block, one line a quantity."""

from __future__ import annotations

from dataclasses import dataclass

from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene

LEFT, LABEL, ROW, GAP, WIDTH = 16, 190, 44, 16, 960


@dataclass(frozen=True)
class Line:
    """A quantity: ``name`` in frames (`S[0][1]`: block 0, second value), palette role, label at the left."""

    name: str
    role: str
    label: str


class Columns:
    """``blocks`` holds each block's texts by line name; the first line is seen from the start."""

    def __init__(self, scene: Scene, lines: list[Line], blocks: list[dict[str, list[str]]]):
        self.scene, self.lines, self.blocks = scene, lines, blocks
        self.width = block_width(len(blocks))
        scene.width = max(WIDTH, LEFT * 2 + LABEL + len(blocks) * (self.width + GAP))

    @property
    def bottom(self) -> float:
        return 14 + len(self.lines) * ROW

    def frame(self, caption: str, tick: str, current: int, known: int) -> Frame:
        """Blocks before ``current`` show every line, block ``current`` the first ``known``, later ones the first."""
        frame = self.scene.frame(caption, tick)
        for at, line in enumerate(self.lines):
            frame.text(f"label {line.name}", LEFT, 34 + at * ROW, line.label, align="start", bold=True)
        for block in range(len(self.blocks)):
            shown = len(self.lines) if block < current else known if block == current else 1
            self._block(frame, block, max(1, shown), newest=known - 1 if block == current else 0)
        return frame

    def _block(self, frame: Frame, block: int, shown: int, newest: int) -> None:
        x = LEFT + LABEL + block * (self.width + GAP)
        for at, line in enumerate(self.lines):
            texts = self.blocks[block][line.name]
            wide = self.width / len(texts)
            for n, text in enumerate(texts):
                style = {"fill": line.role, "strength": 1 if at == newest and at else PALE} if at < shown else {}
                place = (x + n * wide, 14 + at * ROW, wide, ROW - 4)
                frame.rect(f"{line.name}[{block}][{n}]", *place, text if at < shown else "", size=17, **style)


def block_width(blocks: int) -> float:
    """Units for one of so many blocks, at least enough for four short numbers."""
    return max(200, (WIDTH - LEFT * 2 - LABEL) // max(1, blocks) - GAP)
