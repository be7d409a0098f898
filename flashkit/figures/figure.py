"""A figure: a scene that shows itself in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from flashkit.figures.poster import png
from flashkit.figures.scene import Scene


@dataclass(frozen=True)
class Still:
    """One frame as a picture; ``alt`` is its caption."""

    png: bytes
    alt: str

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"image/png": self.png, "text/plain": self.alt}


@dataclass
class Figure:
    """An animation. ``scene`` is its data, ``alt`` says in one sentence what it shows."""

    scene: Scene

    @property
    def alt(self) -> str:
        return self.scene.alt

    def still(self, frame: int = 0) -> Still:
        """Frame ``frame`` (negative counts from the end) as a picture. Raises IndexError when there is none."""
        return Still(png(self.scene, frame), self.scene.frames[frame].caption)

    @cached_property
    def poster(self) -> bytes:
        """The first frame as PNG."""
        return png(self.scene)

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"image/png": self.poster, "text/plain": self.alt}
