"""A figure as the plain data that player.js draws: every different shape once, frames as lists of their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from flashkit.figures.palette import COLOURS, THEMES
from flashkit.figures.scene import Scene, Shape


@dataclass(frozen=True)
class Control:
    """A choice beside the picture, a "select" or a "range"; ``chosen`` is the number of the option shown first."""

    label: str
    options: tuple[str, ...]
    kind: str = "select"
    chosen: int = 0


def package(scenes: Mapping[tuple[int, ...], Scene], controls: Sequence[Control] = (), autoplay: bool = False) -> dict:
    """The data of a figure: one scene for each combination of the controls' options (the key: their numbers)."""
    first = scenes[tuple(control.chosen for control in controls)]
    numbers: dict[Shape, int] = {}
    return {
        "title": first.title,
        "alt": first.alt,
        "scenes": {",".join(map(str, key)): _scene(scene, numbers) for key, scene in scenes.items()},
        "shapes": [_compact(shape) for shape in numbers],
        "controls": [asdict(control) for control in controls],
        "colours": {name: [colour.fill, colour.on] for name, colour in COLOURS.items()},
        "themes": THEMES,
        "autoplay": autoplay,
    }


def _scene(scene: Scene, numbers: dict[Shape, int]) -> dict:
    frames = [
        {
            "caption": frame.caption,
            "tick": frame.tick,
            "show": [numbers.setdefault(shape, len(numbers)) for shape in frame.shapes.values()],
        }
        for frame in scene.frames
    ]
    return {"width": _plain(scene.width), "height": _plain(scene.height), "frames": frames}


_DEFAULTS = {f.name: f.default for f in fields(Shape)}


def _compact(shape: Shape) -> dict:
    return {key: _plain(value) for key, value in asdict(shape).items() if value != _DEFAULTS[key]}


def _plain(value):
    """Coordinates to a hundredth of a unit: shorter, and no NumPy number reaches JSON."""
    if isinstance(value, (str, bool)):
        return value
    value = round(float(value), 2)
    return int(value) if value.is_integer() else value
