"""Chapter 5: the bytes of a tile choice against each GPU's limit, and how often K and V are then read."""

from __future__ import annotations

from flashkit.figures.figure import Figure
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene
from flashkit.figures.wire import Control
from reference.occupancy import KIB, LIMITS
from reference.tile_budget import WorkingSet, working_set
from reference.traffic import Shape

WIDTH, HEIGHT = 960, 480
LEFT, RIGHT, TOP, ROW = 96, 716, 104, 70
MOST = 448 * KIB  # bytes at the right end
N = 4096
QUERY_TILES, KEY_TILES, DIMENSIONS = (32, 64, 128, 256), (32, 64, 128), (64, 128)
PARTS = (("inputs", "SRAM", "Q, K, V"), ("scores", "S", "S"), ("output", "O", "O"))
SHOWN = (80, 86, 89, 90, 100, 120)


def tile_budgets() -> Figure:
    """The working set of four query tiles as bars; controls choose the key tile and d. One head, fp16, N = 4,096."""
    scenes = {(k, n): _scene(block_k, d) for k, block_k in enumerate(KEY_TILES) for n, d in enumerate(DIMENSIONS)}
    return Figure.of(
        scenes,
        Control("key tile", tuple(map(str, KEY_TILES)), "range", 1),
        Control("d", tuple(map(str, DIMENSIONS)), "range", 1),
    )


def limits() -> dict[int, str]:
    """Bytes of shared memory that one block may have -> the architectures of which it is the limit."""
    found: dict[int, list[str]] = {}
    for arch in SHOWN:
        found.setdefault(LIMITS[arch].block_shared, []).append(str(arch))
    return {size: "sm_" + ", ".join(archs) for size, archs in sorted(found.items())}


def _scene(block_k: int, d: int) -> Scene:
    scene = Scene(
        "The budget of a tile choice",
        "Bars of the bytes that a query tile of 32, 64, 128 or 256 rows works on, against what one block may have on "
        "each GPU; beside each bar the number of query tiles, each of which reads all of K and V.",
        WIDTH,
        HEIGHT,
    )
    for at, block_q in enumerate(QUERY_TILES):
        used = working_set(block_q, block_k, d)
        tiles = Shape(N, N, d, d, block_q, block_k).query_tiles
        frame = scene.frame(
            f"{block_q} query rows, {block_k} keys, d = {d}: {_kib(used.inputs)} of Q, K, V, {_kib(used.scores)} of S, "
            f"{_kib(used.output)} of O: {_kib(used.total)}. At N = {N:,} all of K and V is read {tiles} times.",
            str(block_q),
        )
        _limits(frame)
        _legend(frame)
        for row, rows in enumerate(QUERY_TILES):
            _bar(
                frame, row, rows, working_set(rows, block_k, d), Shape(N, N, d, d, rows, block_k).query_tiles, row - at
            )
    return scene


def _bar(frame: Frame, row: int, block_q: int, used: WorkingSet, tiles: int, later: int) -> None:
    """The bar of one query tile: strong now, pale before (``later`` < 0), outlined only after."""
    y, x = TOP + row * ROW, LEFT
    frame.text(f"rows {block_q}", LEFT - 12, y + 22, f"{block_q}", align="end", bold=later == 0)
    for part, role, label in PARTS:
        wide = (RIGHT - LEFT) * getattr(used, part) / MOST
        style = {"fill": role, "strength": 1 if later == 0 else PALE} if later <= 0 else {}
        text = label if later <= 0 and wide > 10 * len(label) + 12 else ""
        frame.rect(f"{part} {block_q}", x, y, wide, 44, text, **style)
        x += wide
    if later <= 0:
        frame.text(f"total {block_q}", RIGHT + 24, y + 10, _kib(used.total), align="start", bold=True)
        frame.text(f"tiles {block_q}", RIGHT + 24, y + 34, f"{tiles} query tiles", align="start", size=17)


def _limits(frame: Frame) -> None:
    bottom = TOP + len(QUERY_TILES) * ROW
    for at, (size, names) in enumerate(limits().items()):
        x = LEFT + (RIGHT - LEFT) * size / MOST
        frame.line(f"limit {size}", x, 20 + 28 * at, x, bottom, dashed=True, stroke=2)
        frame.text(f"limit text {size}", x + 8, 22 + 28 * at, f"{_kib(size)} a block: {names}", align="start", size=17)
    frame.text("axis", LEFT - 12, TOP - 24, "rows", align="end", size=17)


def _legend(frame: Frame) -> None:
    y = TOP + len(QUERY_TILES) * ROW + 24
    for at, (part, role, label) in enumerate(PARTS):
        x = LEFT + at * 190
        frame.rect(f"legend {part}", x, y, 28, 28, fill=role)
        text = f"{label} ({'fp16' if part == 'inputs' else 'fp32'})"
        frame.text(f"legend text {part}", x + 38, y + 14, text, align="start", size=17)
    note = "A guide to the direction: compilers lay tiles out their own way, some in registers."
    frame.text("note", LEFT, y + 52, note, align="start", size=17)


def _kib(size: int) -> str:
    return f"{size / KIB:g} KiB"
