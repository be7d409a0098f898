"""Chapter 5: a heat map of tile choices, coloured by what keeps another block off the SM."""

from __future__ import annotations

from flashkit.figures.figure import Figure
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene
from flashkit.figures.wire import Control
from reference.machines import OF_ARCH
from reference.tile_budget import SPILLS, Estimate, estimate

WIDTH, HEIGHT = 960, 470
LEFT, TOP, CELL_W, CELL_H = 110, 64, 112, 68
SIDES = (16, 32, 64, 128, 256)
WARPS, STAGES, D = (4, 8), (2, 3, 4), 128
LOOK = {  # what binds -> the legend's words, and how a cell of it looks
    "registers": ("registers", {"fill": "tensor core"}),
    "shared memory": ("shared memory", {"fill": "SRAM"}),
    "warps": ("warps or blocks", {"fill": "V", "strength": PALE}),
    SPILLS: ("spills: too many registers", {"fill": "HBM", "strength": PALE, "hatch": "cross"}),
    "": ("no block fits", {"hatch": "dots"}),
}


def what_binds() -> Figure:
    """Each cell a tile of the fp16 forward, d = 128: blocks an SM as :func:`reference.tile_budget.estimate` has it.

    Steps are stages; controls choose the GPU and the warps of a block.
    """
    scenes = {(g, w): _scene(arch, warps) for g, arch in enumerate(OF_ARCH) for w, warps in enumerate(WARPS)}
    names = tuple(machine.gpu for machine in OF_ARCH.values())
    return Figure.of(
        scenes,
        Control("GPU", names, "select", list(OF_ARCH).index(90)),
        Control("warps", tuple(map(str, WARPS)), "range", 0),
    )


def look(guess: Estimate) -> str:
    """The key of LOOK for an estimate."""
    if not guess.occupancy.blocks:
        return ""
    return "warps" if guess.binds == "blocks" else guess.binds


def _scene(arch: int, warps: int) -> Scene:
    name = OF_ARCH[arch].gpu
    scene = Scene(
        "What binds a tile choice",
        "A grid of query tile against key tile; each cell says how many blocks an SM holds and is coloured by what "
        "keeps one more off it: registers, shared memory, or warps; crossed where registers spill, dotted where not "
        "even one block fits.",
        WIDTH,
        HEIGHT,
    )
    for stages in STAGES:
        cells = {(q, k): estimate(arch, q, k, D, warps, stages) for q in SIDES for k in SIDES}
        good = [tile for tile, guess in cells.items() if guess.fits]
        largest = max(good, key=lambda tile: (tile[0] * tile[1], tile[0]))
        frame = scene.frame(
            f"{name}, {warps} warps, {stages} stages, d = {D}: {len(good)} of {len(cells)} tiles fit without a spill; "
            f"the largest is {largest[0]} × {largest[1]}.",
            str(stages),
        )
        _axes(frame)
        for (block_q, block_k), guess in cells.items():
            _cell(frame, SIDES.index(block_q), SIDES.index(block_k), f"{block_q},{block_k}", guess)
        _legend(frame)
    return scene


def _cell(frame: Frame, row: int, column: int, name: str, guess: Estimate) -> None:
    kind = look(guess)
    blocks = guess.occupancy.blocks
    text = "none" if not blocks else "spills" if kind == SPILLS else f"{blocks} block{'s' * (blocks > 1)}"
    place = (LEFT + column * CELL_W, TOP + row * CELL_H, CELL_W - 6, CELL_H - 6)
    frame.rect(f"tile[{name}]", *place, text, **LOOK[kind][1])


def _axes(frame: Frame) -> None:
    frame.text("keys", LEFT, 18, "block_k: keys of a tile", align="start", bold=True)
    frame.text("rows", 12, TOP + len(SIDES) * CELL_H + 22, "block_q: query rows of a tile", align="start", bold=True)
    for at, side in enumerate(SIDES):
        frame.text(f"column {side}", LEFT + at * CELL_W + CELL_W / 2 - 3, 46, str(side))
        frame.text(f"row {side}", LEFT - 14, TOP + at * CELL_H + CELL_H / 2 - 3, str(side), align="end")


def _legend(frame: Frame) -> None:
    x = LEFT + len(SIDES) * CELL_W + 18
    for at, (text, style) in enumerate(LOOK.values()):
        frame.rect(f"legend {text}", x, TOP + at * 52, 30, 30, **style)
        frame.text(f"legend text {text}", x + 40, TOP + at * 52 + 15, text, align="start", size=17)
    for at, text in enumerate(("An estimate: the", "compiler decides.")):
        frame.text(f"note {at}", x, TOP + 290 + at * 24, text, align="start", size=17)
