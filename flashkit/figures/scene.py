"""A scene is an animation as plain data: frames of named shapes, each with a caption. Nothing here draws.

Units are 1/120 inch, x to the right and y down, so that a poster at 120 dpi has a pixel a unit and SMALL is 10 pt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from flashkit.figures.palette import COLOURS, HATCHES

SMALL = 17  # the smallest font size, 10.2 pt on a poster
TEXT = 18
KINDS = ("rect", "text", "line", "arrow")
ALIGNMENTS = ("start", "middle", "end")


@dataclass(frozen=True)
class Shape:
    """One shape. A rect spans (x, y) to (x + w, y + h), a line or arrow runs between them, a text is centred on y.

    ``fill`` is a name of the palette or "" for none; ``strength`` 0 to 1 is its opacity. ``text`` may have lines.
    """

    kind: str
    name: str
    x: float
    y: float
    w: float = 0
    h: float = 0
    text: str = ""
    fill: str = ""
    strength: float = 1
    hatch: str = ""
    size: float = TEXT
    align: str = "middle"
    bold: bool = False
    stroke: float = 1.5
    dashed: bool = False

    def __post_init__(self):
        known = {"kind": KINDS, "fill": ("", *COLOURS), "hatch": ("", *HATCHES), "align": ALIGNMENTS}
        for key, allowed in known.items():
            if getattr(self, key) not in allowed:
                raise ValueError(f"shape {self.name}: {key} must be one of {allowed}, but is {getattr(self, key)!r}")
        if self.text and self.size < SMALL:
            raise ValueError(f"shape {self.name}: text must be at least {SMALL} units high, but is {self.size}")


@dataclass
class Frame:
    """What is seen at one step: shapes by name in drawing order, one sentence, and a short label on the time line."""

    caption: str
    tick: str = ""
    shapes: dict[str, Shape] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Shape:
        return self.shapes[name]

    def add(self, shape: Shape) -> None:
        if shape.name in self.shapes:
            raise ValueError(f"the frame has a shape named {shape.name!r} already")
        self.shapes[shape.name] = shape

    def rect(self, name: str, x: float, y: float, w: float, h: float, text: str = "", **style) -> None:
        self.add(Shape("rect", name, x, y, w, h, text, **style))

    def text(self, name: str, x: float, y: float, text: str, **style) -> None:
        self.add(Shape("text", name, x, y, text=text, **style))

    def line(self, name: str, x: float, y: float, x2: float, y2: float, **style) -> None:
        self.add(Shape("line", name, x, y, x2 - x, y2 - y, **style))

    def arrow(self, name: str, x: float, y: float, x2: float, y2: float, **style) -> None:
        self.add(Shape("arrow", name, x, y, x2 - x, y2 - y, **style))


@dataclass
class Scene:
    """An animation: ``alt`` says in one sentence what the picture is."""

    title: str
    alt: str
    width: float
    height: float
    frames: list[Frame] = field(default_factory=list)

    def frame(self, caption: str, tick: str = "") -> Frame:
        """A new last frame, empty."""
        self.frames.append(Frame(caption, tick))
        return self.frames[-1]


def number(value: float, digits: int = 2) -> str:
    """A number as pictures write it: a real minus sign, and the sign of infinity."""
    value = float(value)
    if math.isnan(value):
        return "NaN"
    text = "∞" if math.isinf(value) else f"{abs(value):.{digits}f}"
    return ("−" if value < 0 and text.strip("0.") else "") + text
