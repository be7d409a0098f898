"""Which widgets a notebook's cells show: a cell that is run anew closes what it showed before.

Else every run of a cell would leave one more copy of its scene in the kernel, and so in the saved notebook.
"""

from __future__ import annotations

import sys

_shown: dict[str, tuple[str, list]] = {}  # by cell: which run of it, and the widgets that this run showed


def show(widget) -> dict:
    """The mime bundle of ``widget``, which from now on belongs to the cell that is running."""
    cell, run = _running()
    if cell:
        before, widgets = _shown.get(cell, ("", []))
        if before != run:
            _shown[cell] = run, []
            for old in widgets:
                _leave(old)
        if widget not in _shown[cell][1]:
            _shown[cell][1].append(widget)
    return dict(widget._repr_mimebundle_()[0])


def is_open(widget) -> bool:
    """False once a widget was closed: then another one has to be made."""
    return widget is not None and widget.comm is not None


def _running() -> tuple[str, str]:
    """The running cell's id, as JupyterLab and VS Code tell the kernel, and the run's; empty elsewhere."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return parent.get("metadata", {}).get("cellId", ""), parent.get("header", {}).get("msg_id", "")


def _leave(widget) -> None:
    if not any(widget in widgets for _, widgets in _shown.values()):
        widget.layout.close()
        widget.close()
