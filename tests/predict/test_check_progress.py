"""A check in a notebook is kept as progress; elsewhere it is not."""

import pytest
import torch

from flashkit import progress
from flashkit.check import check

triton = pytest.importorskip("triton", reason="not run here: needs triton, which is for Linux")
tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="not run here: needs the interpreter")


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = tl.load(y_ptr + at, mask=at < n, other=0.0)
    tl.store(z_ptr + at, x + y, mask=at < n)


def add(x, y, block):
    z = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), block),)](x, y, z, x.numel(), block=block)
    return z


@pytest.mark.parametrize("notebook", [True, False])
def test_only_a_check_in_a_notebook_is_progress(monkeypatch, tmp_path, notebook):
    monkeypatch.setenv("FLASHKIT_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setattr(progress, "in_a_notebook", lambda: notebook)
    report = check("00.add", add)
    expected = {"00.add": {"points": report.points, "out_of": report.out_of}} if notebook else {}
    assert progress.progress().checks == expected
