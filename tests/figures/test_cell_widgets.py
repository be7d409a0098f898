"""A cell that is run again and again leaves one widget behind, not one a run."""

import pytest

from flashkit.figures import cell_widgets, row_state
from flashkit.predict import predict

pytest.importorskip("anywidget", reason="not run here: needs anywidget")


class Shell:
    """What IPython's shell says of the cell that runs."""

    def __init__(self):
        self.cell, self.number = "", 0

    def run(self, cell: str) -> None:
        self.cell, self.number = cell, self.number + 1

    def get_parent(self) -> dict:
        return {"metadata": {"cellId": self.cell}, "header": {"msg_id": f"run {self.number}"}}


@pytest.fixture
def shell(monkeypatch):
    import IPython

    shell = Shell()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    monkeypatch.setattr(cell_widgets, "_shown", {})
    return shell


@pytest.fixture
def live():
    """How many widgets with data there are more than at the start."""
    from ipywidgets import Widget
    from ipywidgets.widgets.widget import _instances

    def count() -> int:
        return sum(hasattr(widget, "data") for widget in _instances.values() if isinstance(widget, Widget))

    before = count()
    return lambda: count() - before


def test_a_cell_run_anew_closes_what_it_showed(shell, live):
    for _ in range(3):
        shell.run("a")
        row_state()._repr_mimebundle_()
        predict("03.tail")._repr_mimebundle_()
        assert live() == 2


def test_another_cells_widget_stays(shell, live):
    shell.run("a")
    figure = row_state()
    figure._repr_mimebundle_()
    shell.run("b")
    shown = figure._repr_mimebundle_()
    shell.run("a")
    row_state()._repr_mimebundle_()
    assert live() == 2 and cell_widgets.is_open(figure.player)
    assert figure._repr_mimebundle_() == shown


def test_a_closed_figure_shows_itself_anew(shell, live):
    shell.run("a")
    figure, question = row_state(), predict("03.tail")
    first = [figure._repr_mimebundle_()[0], question._repr_mimebundle_()]
    shell.run("a")
    row_state()._repr_mimebundle_()
    shell.run("b")
    second = [figure._repr_mimebundle_()[0], question._repr_mimebundle_()]
    assert all(a != b for a, b in zip(first, second, strict=True)) and live() == 3


def test_outside_a_notebook_nothing_is_closed(monkeypatch, live):
    import IPython

    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    figures = [row_state(), row_state()]
    for figure in figures:
        figure._repr_mimebundle_()
    assert live() == 2
