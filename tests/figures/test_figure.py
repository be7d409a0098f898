"""A figure in a notebook, as a PNG and as a page; and what it needs to be imported."""

import base64
import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flashkit.figures import PICTURES, tile_walk
from flashkit.figures.__main__ import main
from flashkit.figures.page import page

ROOT = Path(__file__).resolve().parents[2]


def test_figures_import_without_jupyter_matplotlib_or_anywidget():
    blocked = ["matplotlib", "anywidget", "ipywidgets", "IPython", "traitlets", "jupyter_client", "triton"]
    code = f"import sys\nfor name in {blocked}: sys.modules[name] = None\nimport flashkit.figures as f\n"
    code += "assert f.tile_walk().scene.frames"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_anywidget_the_poster_stands_in(monkeypatch):
    figure = tile_walk()
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    bundle, _ = figure._repr_mimebundle_()
    assert set(bundle) == {"image/png", "text/html", "text/plain"}
    assert bundle["text/plain"] == figure.alt


def test_in_a_notebook_it_is_a_widget_with_a_poster_and_a_sentence():
    pytest.importorskip("anywidget", reason="not run here: needs anywidget")
    figure = tile_walk()
    bundle, metadata = figure._repr_mimebundle_()
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "image/png", "text/html", "text/plain"}
    assert bundle["text/plain"] == figure.alt == metadata["image/png"]["alt"]
    assert figure._repr_mimebundle_()[0] == bundle  # shown twice, it is the same widget


@pytest.mark.parametrize("name", PICTURES)
def test_the_player_starts_with_the_posters_frame_and_has_a_sentence(name):
    figure = PICTURES[name]()  # its poster is the first frame of figure.scene
    data = figure.data()
    first = data["scenes"][",".join(str(control["chosen"]) for control in data["controls"])]["frames"][0]
    drawn = [data["shapes"][number]["name"] for number in first["show"]]
    assert drawn == list(figure.scene.frames[0].shapes) and first["caption"] == figure.scene.frames[0].caption
    assert len(figure.alt.split()) >= 8 and figure.alt.endswith(".")


def test_a_built_site_shows_the_poster_with_its_alt_text():
    nbconvert = pytest.importorskip("nbconvert", reason="not run here: needs nbconvert")
    nbformat = pytest.importorskip("nbformat", reason="not run here: needs nbformat")
    figure = tile_walk()
    data, metadata = figure._repr_mimebundle_()
    data = {kind: data[kind] for kind in ("text/html", "text/plain")}
    data["image/png"] = base64.b64encode(figure.poster).decode()
    output = nbformat.v4.new_output("display_data", data, metadata=metadata)
    cell = nbformat.v4.new_code_cell("", outputs=[output])
    page, _ = nbconvert.HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    images = re.findall(r'<img alt="([^"]*)" src="data:image/png', page)
    assert [html.unescape(alt) for alt in images] == [figure.alt]


def test_a_still_is_an_opaque_png_with_its_caption_as_text():
    Image = pytest.importorskip("PIL.Image", reason="not run here: needs pillow")
    import io

    still = tile_walk().still(-1)
    image = Image.open(io.BytesIO(still.png)).convert("RGBA")
    assert image.width == 960 and image.getextrema()[3] == (255, 255)
    assert image.getpixel((1, 1)) == (255, 255, 255, 255)
    assert still.alt == tile_walk().scene.frames[-1].caption


def test_a_frame_that_is_not_there_is_an_index_error():
    with pytest.raises(IndexError):
        tile_walk().still(1000)


@pytest.mark.parametrize("name", PICTURES)
def test_a_page_holds_everything_and_may_fetch_nothing(name):
    figure = PICTURES[name]()
    text = page(figure)
    data = json.loads(re.search(r"^const DATA = (.*);$", text, re.M).group(1))
    assert data["title"] == figure.scene.title and data["autoplay"]
    assert "default-src 'none'" in text
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert len(text) < 1_000_000


def test_export_writes_into_dist_which_git_ignores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", "row_state"]) == 0
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")] == ["dist/row_state.html"]


def test_export_writes_a_page(tmp_path, capsys):
    assert main(["export", "row_state", "--out", str(tmp_path / "row.html")]) == 0
    assert (tmp_path / "row.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "row.html written" in capsys.readouterr().out


BAD = [
    (["export", "nothing"], "there is no figure 'nothing'; there are: byte_walk"),
    (["export", "row_state", "--out", "/no/where.html"], "cannot write /no/where.html"),
]


@pytest.mark.parametrize("arguments, says", BAD)
def test_a_bad_name_or_place_is_one_line_and_exit_2(arguments, says, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(says) and error.count("\n") == 1
