"""A figure: one scene, or one for each choice of its controls, that shows itself in a notebook or as a page."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from flashkit.figures import cell_widgets
from flashkit.figures.poster import image_element, png
from flashkit.figures.scene import Scene
from flashkit.figures.wire import Control, package


@dataclass(frozen=True)
class Still:
    """One frame as a picture; ``alt`` is its caption."""

    png: bytes
    alt: str

    def _repr_mimebundle_(self, include=None, exclude=None):
        return _as_image(self.png, self.alt)


@dataclass
class Figure:
    """An animation. ``scene`` is what is shown first; with controls, ``variants`` has a scene for each choice."""

    scene: Scene
    controls: tuple[Control, ...] = ()
    variants: Mapping[tuple[int, ...], Scene] = field(default_factory=dict)
    _player: object = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, variants: Mapping[tuple[int, ...], Scene], *controls: Control) -> Figure:
        """A figure with controls; a key of ``variants`` holds the number of each control's option."""
        return cls(variants[tuple(control.chosen for control in controls)], controls, variants)

    @property
    def alt(self) -> str:
        """One sentence that says what the figure shows."""
        return self.scene.alt

    def still(self, frame: int = 0) -> Still:
        """Frame ``frame`` (negative counts from the end) as a picture. Raises IndexError when there is none."""
        return Still(png(self.scene, frame), self.scene.frames[frame].caption)

    def data(self, autoplay: bool = False) -> dict:
        """What player.js draws."""
        return package(self.variants or {(): self.scene}, self.controls, autoplay)

    @cached_property
    def poster(self) -> bytes:
        """The first frame as PNG."""
        return png(self.scene)

    @property
    def player(self):
        """The widget, the same as long as it is open, or None where anywidget is not installed."""
        if not cell_widgets.is_open(self._player) and importlib.util.find_spec("anywidget"):
            from flashkit.figures.player import Player

            self._player = Player(data=self.data())
        return self._player

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle, metadata = _as_image(self.poster, self.alt)
        return ({} if self.player is None else cell_widgets.show(self.player)) | bundle, metadata


def _as_image(png: bytes, alt: str) -> tuple[dict, dict]:
    """A mime bundle and its metadata: most pages prefer the HTML, which has the text; some show images only."""
    bundle = {"image/png": png, "text/html": image_element(png, alt), "text/plain": alt}
    return bundle, {"image/png": {"alt": alt}}
