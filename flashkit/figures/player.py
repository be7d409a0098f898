"""The step player in a notebook: one anywidget for every animation of the course (the drawing is player.js)."""

from __future__ import annotations

import anywidget
import traitlets

from flashkit.figures.script import PLAYER, script


class Player(anywidget.AnyWidget):
    """Shows ``data``, made by :func:`flashkit.figures.wire.package`. It needs no kernel once it is on the page."""

    _esm = script(PLAYER)
    data = traitlets.Dict().tag(sync=True)
