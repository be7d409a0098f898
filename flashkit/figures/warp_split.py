"""Chapter 6: the warps of one block, with the keys split among them or the queries, and what they must exchange."""

from __future__ import annotations

from dataclasses import dataclass

from flashkit.figures.figure import Figure
from flashkit.figures.ledger import size
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene
from flashkit.figures.wire import Control
from reference.schedule import Split, split_k, split_q

WIDTH, HEIGHT = 960, 470
TILE, TILE_X, TILE_Y = 200, 190, 96  # the score tile
O_X = 470
WARPS = 4


@dataclass(frozen=True)
class Step:
    """What is seen at one step: the parts that are at work, and the bytes that shared memory has moved by then."""

    says: str
    tick: str
    scores: bool = False
    weights: bool = False
    output: bool = False
    exchange: str = ""  # what goes through shared memory now
    operands: float = 0.0
    exchanged: float = 0.0


def warp_split(block_q: int = 128, block_k: int = 64, d: int = 128) -> Figure:
    """One key tile in a block of four warps (fp16): split-K as in FlashAttention 1, split-Q as in FlashAttention-2."""
    splits = (split_k(block_q, block_k, d, WARPS), split_q(block_q, block_k, d, WARPS))
    scenes = {(n,): _scene(split, steps(split, block_q, block_k, d)) for n, split in enumerate(splits)}
    return Figure.of(scenes, Control("warps share", ("keys (split-K)", "queries (split-Q)"), "select", 0))


def steps(split: Split, block_q: int, block_k: int, d: int) -> list[Step]:
    """The steps of one key tile; the last one's bytes are the split's."""
    by_keys = split.name == "split-K"
    statistics = 2 * WARPS * block_q * 4 * (1 + WARPS) if by_keys else 0
    scored = (WARPS * block_q * d + block_k * d) * 2 if by_keys else WARPS * block_k * d * 2
    keys, rows = block_k // WARPS, block_q // WARPS
    each = f"{keys} keys and all {block_q} rows" if by_keys else f"{rows} rows and all {block_k} keys"
    reads = (
        f"each reads all of Q, and {keys} keys" if by_keys else "each reads all of K; its rows of Q are in registers"
    )
    known = (
        "A warp knows only its keys: row maxima and sums go through shared memory, and all wait."
        if by_keys
        else "A warp holds whole rows of S: it takes their maxima and sums by itself."
    )
    summed = (
        f"Each warp has a part of every row of O: {WARPS} parts are written, all wait, and the parts are added."
        if by_keys
        else "Each warp's rows of O are complete. Nothing is written, nobody waits."
    )
    moved = f"{size(split.operands)} read as operands, {size(split.exchanged)} exchanged"
    told = f"{split.name}: {moved}, {split.barriers} waits."
    return [
        Step(f"Four warps share one key tile: each takes {each}.", "start"),
        Step(f"S = Q Kᵀ: {reads}.", "S", scores=True, operands=scored),
        Step(known, "P", weights=True, exchange="m, l" if by_keys else "", operands=scored, exchanged=statistics),
        Step("O += P V: each multiplies its part of P with the values of its keys.", "P V", output=True,
             operands=split.operands, exchanged=statistics),
        Step(summed, "sum", output=True, exchange="O" if by_keys else "", operands=split.operands,
             exchanged=split.exchanged),
        Step(told, "end", operands=split.operands, exchanged=split.exchanged),
    ]  # fmt: skip


def _scene(split: Split, walked: list[Step]) -> Scene:
    scene = Scene(
        f"Four warps on one key tile: {split.name}",
        "The score tile of a block is cut among four warps, by keys or by queries; beside it each warp's part of the "
        "output, and below the bytes that go through shared memory.",
        WIDTH,
        HEIGHT,
    )
    for step in walked:
        frame = scene.frame(step.says, step.tick)
        _operands(frame, step)
        for warp in range(WARPS):
            _part(frame, warp, step, by_keys=split.name == "split-K")
        _shared(frame, step)
    return scene


def _operands(frame: Frame, step: Step) -> None:
    on = {"strength": 1 if step.scores else PALE}
    frame.rect("Q", TILE_X - 96, TILE_Y, 60, TILE, "Q", fill="Q", **on)
    frame.rect("K", TILE_X, TILE_Y - 60, TILE, 40, "K", fill="K", **on)
    frame.text("S title", TILE_X + TILE / 2, TILE_Y + TILE + 20, "S, P")
    frame.text("O title", O_X + TILE / 2, TILE_Y + TILE + 20, "O: each warp's part")
    frame.rect("V", O_X, TILE_Y - 60, TILE, 40, "V", fill="V", strength=1 if step.output else PALE)


def _part(frame: Frame, warp: int, step: Step, by_keys: bool) -> None:
    """A warp's part of S, a column or a row of it; and its part of O: all rows of it, or its own."""
    part = TILE / WARPS
    place = (TILE_X + warp * part, TILE_Y, part, TILE) if by_keys else (TILE_X, TILE_Y + warp * part, TILE, part)
    now = step.scores or step.weights
    frame.rect(f"S {warp}", *place, f"w{warp}", fill="S", strength=1 if now else PALE, stroke=3 if now else 1.5)
    mine = (O_X + warp * part, TILE_Y, part - 6, TILE) if by_keys else (O_X, TILE_Y + warp * part, TILE, part - 6)
    style = {"fill": "O", "strength": 1 if step.output else PALE}
    frame.rect(f"O {warp}", *mine, f"w{warp}", stroke=3 if step.output else 1.5, **style)
    if step.exchange:
        x = place[0] + place[2] / 2 if step.exchange != "O" else mine[0] + mine[2] / 2
        frame.arrow(f"exchange {warp}", x, TILE_Y + TILE + 34, x, TILE_Y + TILE + 74, stroke=3)


def _shared(frame: Frame, step: Step) -> None:
    y = TILE_Y + TILE + 78
    text = f"shared memory: {step.exchange} of four warps" if step.exchange else "shared memory"
    wide = O_X + TILE - TILE_X + 96
    frame.rect("shared", TILE_X - 96, y, wide, 64, text, fill="SRAM", strength=1 if step.exchange else PALE)
    for at, (name, value) in enumerate((("operands read", step.operands), ("exchanged", step.exchanged))):
        frame.text(f"{name} label", 720, TILE_Y + 30 + at * 70, name, align="start")
        frame.text(f"{name} value", 720, TILE_Y + 58 + at * 70, size(value), align="start", bold=True, size=22)
