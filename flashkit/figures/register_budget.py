"""Chapter 7: an SM's 65,536 registers before and after setmaxnreg, and what a consumer's tiles take of its share."""

from __future__ import annotations

from flashkit.figures.figure import Figure
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene
from flashkit.figures.wire import Control
from reference import warpgroup_registers as registers

WIDTH, HEIGHT, LEFT = 960, 330, 16
CHOICES = (("2 consumers, d = 128, 176 keys", 2, 24, 176, 128), ("3 consumers, d = 64, 128 keys", 3, 32, 128, 64))


def register_budget() -> Figure:
    """The register file by warpgroup: at launch, once the producer gives, once the consumers take, and their tiles."""
    scenes = {(n,): _scene(*choice[1:]) for n, choice in enumerate(CHOICES)}
    return Figure.of(scenes, Control("kernel", tuple(choice[0] for choice in CHOICES)))


def _scene(consumers: int, producer: int, keys: int, d: int) -> Scene:
    split = registers.split(consumers, producer)
    scene = Scene(
        "The register budget of a warp-specialised kernel",
        "A bar of an SM's 65,536 registers, cut by warpgroup: equal parts at launch, then a small producer and large "
        "consumers; below, one consumer's share with its tiles S, O and P.",
        WIDTH,
        HEIGHT,
    )
    equal = [split.entry] * (consumers + 1)
    given = [producer] + [split.entry] * consumers
    taken = [producer] + [split.consumer] * consumers
    for tick, shares, caption in (
        ("launch", equal, f"At launch each of {consumers + 1} warpgroups has {split.entry} registers a thread."),
        ("give", given, f"The producer, which only issues copies, gives back all but {producer} a thread."),
        ("take", taken, f"Each consumer takes {split.consumer}: {split.taken:,} of 65,536 are in use."),
    ):
        _file(scene.frame(caption, tick), shares)
    frame = scene.frame(_fits(split.consumer, keys, d), "tiles")
    _file(frame, taken)
    _tiles(frame, split.consumer, registers.consumer(keys, d))
    return scene


def _file(frame: Frame, shares: list[int]) -> None:
    frame.text("title", LEFT, 24, "registers of an SM, by warpgroup (128 threads each)", align="start", bold=True)
    x, scale = LEFT, (WIDTH - 2 * LEFT) / (registers.REGISTERS / registers.WARPGROUP)
    frame.rect("file", LEFT, 48, WIDTH - 2 * LEFT, 84)
    for n, share in enumerate(shares):
        name = "producer" if n == 0 else f"consumer {n - 1}"
        wide = share * scale
        text = f"{name}\n{share} a thread" if wide > 140 else str(share)
        frame.rect(
            f"share {n}", x, 48, wide, 84, text, fill="HBM" if n == 0 else "tensor core", strength=1 if n == 0 else PALE
        )
        x += wide
    left = registers.REGISTERS - registers.WARPGROUP * sum(shares)
    frame.text("left", WIDTH - LEFT, 152, f"{left:,} free", align="end", size=17)


def _tiles(frame: Frame, share: int, taken: dict[str, int]) -> None:
    frame.text("share title", LEFT, 190, "one consumer's registers a thread", align="start", bold=True)
    scale, x = (WIDTH - 2 * LEFT) / share, LEFT
    frame.rect("share", LEFT, 212, WIDTH - 2 * LEFT, 84)
    for name, count in taken.items():
        frame.rect(f"tile {name}", x, 212, count * scale, 84, f"{name}: {count}", fill="O" if name == "O" else "S",
                   hatch="diagonal" if name == "P" else "")  # fmt: skip
        x += count * scale
    rest = share - sum(taken.values())
    frame.text("rest", x + (LEFT + share * scale - x) / 2, 254, f"{rest}\nleft", size=17)


def _fits(share: int, keys: int, d: int) -> str:
    taken = registers.consumer(keys, d)
    parts = ", ".join(f"{name} {count}" for name, count in taken.items())
    told = f"{parts} registers a thread, {sum(taken.values())} of {share}"
    return f"64 rows, {keys} keys, d = {d}: {told}. The rest holds m, l and addresses."
