"""`watch`: the picture of a kernel's own accesses agrees with the meter and with the order in which they happened."""

import sys

import pytest
import torch

from flashkit.figures import watch

WATCH = sys.modules["flashkit.figures.watch"]  # the module; the package's attribute is the function

triton = pytest.importorskip("triton", reason="not run here: needs triton, which is for Linux")
tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="not run here: needs the interpreter")


@triton.jit
def scores_kernel(q_ptr, k_ptr, s_ptr, N_q, N_k, d: tl.constexpr, block: tl.constexpr):
    rows = tl.program_id(0) * block + tl.arange(0, block)
    cols = tl.arange(0, d)
    Q_i = tl.load(q_ptr + rows[:, None] * d + cols[None, :], mask=rows[:, None] < N_q, other=0.0)
    for start in range(0, N_k, block):
        keys = start + tl.arange(0, block)
        K_j = tl.load(k_ptr + keys[:, None] * d + cols[None, :], mask=keys[:, None] < N_k, other=0.0)
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee")
        inside = (rows[:, None] < N_q) & (keys[None, :] < N_k)
        tl.store(s_ptr + rows[:, None] * N_k + keys[None, :], S, mask=inside)


def scores(q, k):
    s = torch.empty((q.shape[0], k.shape[0]))
    scores_kernel[(triton.cdiv(q.shape[0], 16),)](q, k, s, q.shape[0], k.shape[0], d=16, block=16)
    return s


@pytest.fixture(scope="module")
def scene():
    return watch(scores, torch.randn(40, 16), torch.randn(20, 16)).scene


def test_there_is_a_frame_for_every_access_in_order(scene):
    assert len(scene.frames) == 3 * (1 + 2 * 2) + 2
    assert scene.frames[1].caption.startswith("Program (0) reads rows 0 to 15 of q, 1 KiB: line")
    assert "Q_i = tl.load" in scene.frames[1].caption
    assert scene.frames[2].caption.startswith("Program (0) reads rows 0 to 15 of k")
    assert scene.frames[3].caption.startswith("Program (0) writes rows 0 to 15 of s")
    assert scene.frames[-2].caption.startswith("Program (2) writes rows 32 to 39 of s, 128 B")


def test_the_tiles_of_s_are_those_that_the_kernel_walked(scene):
    tiles = [shape for name, shape in scene.frames[-1].shapes.items() if name.startswith("tile ")]
    assert len(tiles) == 6
    assert sum(tile.w * tile.h for tile in tiles) == pytest.approx(scene.frames[-1]["S"].w * scene.frames[-1]["S"].h)


def test_the_rows_that_a_program_writes_are_drawn_whatever_the_output_is_called(scene):
    strip, rows = scene.frames[3]["strip s"], scene.frames[3]["rows s"]
    assert (rows.y, rows.h) == (strip.y, pytest.approx(strip.h * 16 / 40))
    assert "rows s" not in scene.frames[2].shapes


def test_bytes_and_the_reuse_score_are_the_meters(scene):
    last = scene.frames[-1]
    assert last["read q"].text == "2.5 KiB" and last["times each q"].text == "1"
    assert last["read k"].text == "3.8 KiB" and last["times each k"].text == "3"
    assert last["written s_ptr"].text == "3.1 KiB"
    assert "k 3 times" in last.caption


def test_a_kernel_with_its_grid_is_watched_too_and_without_one_refused():
    q, k, s = torch.randn(40, 16), torch.randn(20, 16), torch.empty(40, 20)
    last = watch(scores_kernel[(3,)], q, k, s, 40, 20, d=16, block=16).scene.frames[-1]
    assert len([name for name in last.shapes if name.startswith("tile ")]) == 6
    assert last["times each k_ptr"].text == "3"
    with pytest.raises(TypeError, match=r"scores_kernel\[grid\]"):
        watch(scores_kernel, q, k, s, 40, 20, d=16, block=16)


def test_a_long_run_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr(WATCH, "MOST", 5)
    scene = watch(scores, torch.randn(40, 16), torch.randn(20, 16)).scene
    assert len(scene.frames) == 5 + 2
    assert scene.frames[-1].caption.endswith("Only the first 5 of 15 accesses have a step of their own.")
    assert scene.frames[-1]["read k"].text == "3.8 KiB"


def test_without_a_kernel_there_is_nothing_to_draw():
    with pytest.raises(ValueError, match="does the function launch a kernel"):
        watch(lambda q: q + 1, torch.ones(4))
