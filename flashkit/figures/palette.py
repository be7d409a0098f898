"""The course's fixed colours: one for each meaning, the same in every picture, and never the only sign of it.

Base: the colour-blind safe set of Okabe and Ito (2008). Every filled shape also carries a label or a hatch, and an
outline, because orange, sky and yellow have less than 3:1 contrast on white.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Colour:
    """A fill and the colour of text on it (contrast at least 4.5:1)."""

    fill: str
    on: str


COLOURS = {
    "Q": Colour("#0072B2", "#ffffff"),
    "K": Colour("#E69F00", "#000000"),
    "V": Colour("#009E73", "#000000"),
    "S": Colour("#CC79A7", "#000000"),  # S and P: scores, and the weights made of them
    "O": Colour("#D55E00", "#000000"),
    "HBM": Colour("#666666", "#ffffff"),
    "SRAM": Colour("#56B4E9", "#000000"),
    "tensor core": Colour("#F0E442", "#000000"),
    "softmax": Colour("#000000", "#ffffff"),
}

HATCHES = ("diagonal", "dots", "cross")  # by convention: hidden by the mask, past the end, skipped

PALE = 0.25  # strength of a fill that is not in use now; text on it takes the theme's ink


@dataclass(frozen=True)
class Theme:
    """Paper, ink and focus ring of a theme, all opaque, so that no page shows through."""

    paper: str
    ink: str
    focus: str


LIGHT = Theme("#ffffff", "#1a1a1a", "#0072B2")
DARK = Theme("#111111", "#eeeeee", "#56B4E9")


THEMES = {"light": asdict(LIGHT), "dark": asdict(DARK)}  # for the browser


def contrast(a: str, b: str) -> float:
    """WCAG 2 contrast ratio of two ``#rrggbb`` colours, 1 to 21."""
    light, dark = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def mix(colour: str, paper: str, strength: float) -> str:
    """``colour`` laid on ``paper`` with opacity ``strength``, as an opaque ``#rrggbb``."""
    pairs = zip(_channels(colour), _channels(paper), strict=True)
    return "#" + "".join(f"{round(strength * c + (1 - strength) * p):02x}" for c, p in pairs)


def _channels(colour: str) -> list[int]:
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in _channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
