"""The step player in a notebook: one anywidget for every animation of the course (the drawing is player.js)."""

from __future__ import annotations

from pathlib import Path

import anywidget
import traitlets

SOURCE = Path(__file__).with_name("player.js")


class Player(anywidget.AnyWidget):
    """Shows ``data``, made by :func:`flashkit.figures.wire.package`. It needs no kernel once it is on the page."""

    _esm = SOURCE.read_text(encoding="utf-8")
    data = traitlets.Dict().tag(sync=True)
