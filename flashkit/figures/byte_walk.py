"""Chapter 1: bytes walking between HBM and the chip, naive against fused, with both ledgers adding up."""

from __future__ import annotations

from flashkit.figures.figure import Figure
from flashkit.figures.ledger import Moved, fused_moves, naive_moves, size
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene
from flashkit.figures.wire import Control
from reference.traffic import Shape

WIDTH, HEIGHT, PANEL = 960, 476, 464
TOP, ROW = 104, 40
LENGTHS = (1024, 4096, 16384)
TILES = (64, 128, 256)
BLOCK_K = 128
TENSORS = ("Q", "K", "V", "S", "P", "O", "lse")
ROLE = {"P": "S", "lse": "softmax"}
ON_CHIP = {
    "naive": ("", "Qᵢ  Kⱼ", "Sᵢⱼ", "rows of S", "rows of P", "Pᵢⱼ  Vⱼ", "Oᵢ"),
    "fused": ("", "Q₀", "Q₀  Kⱼ  Vⱼ\nS₀ⱼ  P₀ⱼ\nm  l  acc", "O₀") + ("Qᵢ  Kⱼ  Vⱼ\nSᵢⱼ  Pᵢⱼ\nm  l  acc",) * 3,
}


def byte_walk(d: int = 64, itemsize: int = 2) -> Figure:
    """Naive attention in three kernels beside one fused kernel, for one head; N and the query tile are controls.

    The bytes are those of :mod:`reference.traffic`, key tiles of 128: every request counts, as if there were no cache.
    """
    scenes = {
        (n, b): _scene(Shape(N, N, d, d, block_q, BLOCK_K, itemsize))
        for n, N in enumerate(LENGTHS)
        for b, block_q in enumerate(TILES)
    }
    return Figure.of(
        scenes,
        Control("N", tuple(f"{N:,}" for N in LENGTHS), "range", len(LENGTHS) - 1),
        Control("query tile", tuple(map(str, TILES)), "range", 1),
    )


def _scene(shape: Shape) -> Scene:
    scene = Scene(
        "Bytes between HBM and the chip: naive against fused attention",
        "Two ledgers of bytes read and written per tensor: three naive kernels store S and P and read them back, "
        "one fused kernel never does but reads K and V once for every query tile.",
        WIDTH,
        HEIGHT,
    )
    pairs = zip(naive_moves(shape), fused_moves(shape), strict=True)
    most = max(naive_moves(shape)[-1][1].total, fused_moves(shape)[-1][1].total)
    for at, ((naive_says, left), (fused_says, right)) in enumerate(pairs):
        caption = f"Naive: {naive_says}, {size(left.total)} so far. Fused: {fused_says}, {size(right.total)} so far."
        frame = scene.frame(caption, str(at) if at else "start")
        _panel(frame, 8, "naive", "Naive: three kernels", left, ON_CHIP["naive"][at], most)
        _panel(
            frame,
            WIDTH - PANEL,
            "fused",
            f"Fused: one kernel, query tiles of {shape.block_q}",
            right,
            ON_CHIP["fused"][at],
            most,
        )
    return scene


def _panel(frame: Frame, x: float, name: str, title: str, moved: Moved, on_chip: str, most: int) -> None:
    frame.text(f"{name} title", x, 20, title, align="start", bold=True, size=19)
    frame.rect(f"{name} HBM", x, 40, 286, 32, "HBM", fill="HBM", bold=True)
    frame.rect(f"{name} chip head", x + 336, 40, 120, 32, "on chip", fill="SRAM", bold=True)
    for column, head in enumerate(("read", "written")):
        frame.text(f"{name} {head}", x + 60 + 56 + column * 113, 88, head, bold=True)
    for at, tensor in enumerate(TENSORS):
        _tensor(frame, x, TOP + at * ROW, name, tensor, moved)
    height = len(TENSORS) * ROW
    frame.rect(f"{name} chip", x + 336, TOP, 120, height, on_chip, fill="SRAM", strength=PALE, size=17)
    y = TOP + height + 20
    frame.text(f"{name} total", x, y + 16, f"total {size(moved.total)}", align="start", bold=True)
    frame.rect(f"{name} scale", x, y + 36, 456, 26)
    frame.rect(f"{name} bar", x, y + 36, 456 * moved.total / most, 26, fill="HBM")


def _tensor(frame: Frame, x: float, y: float, name: str, tensor: str, moved: Moved) -> None:
    active = any(move.endswith(f" {tensor}") for move in moved.now)
    role = ROLE.get(tensor, tensor)
    frame.rect(f"{name} {tensor}", x, y, 60, ROW, tensor, fill=role, strength=1 if active else PALE, bold=True)
    for column, (direction, sums) in enumerate((("load", moved.loaded), ("store", moved.stored))):
        moving = f"{direction} {tensor}" in moved.now
        text = size(sums[tensor]) if tensor in sums else "–"
        place = (x + 60 + column * 113, y, 113, ROW)
        frame.rect(f"{name} {direction} {tensor}", *place, text, bold=moving, stroke=3 if moving else 1)
        if moving:
            ends = (x + 290, x + 332) if direction == "load" else (x + 332, x + 290)
            frame.arrow(f"{name} arrow {direction} {tensor}", ends[0], y + ROW / 2, ends[1], y + ROW / 2, stroke=3)
