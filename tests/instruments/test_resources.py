"""Resources: a kernel as it stands in the notebook, compiled for real GPUs with none there; kept by content."""

import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashkit.exercises import lab_cells
from flashkit.instruments import compile_gate, dry_run
from flashkit.instruments.resources import ARCHITECTURES, cuda_resources, resources

CUDA = 'extern "C" __global__ void twice(const float4 *x, float4 *y) {\n'
CUDA += "    __shared__ float4 kept[128];\n    kept[threadIdx.x] = x[threadIdx.x];\n    __syncthreads();\n"
CUDA += "    y[threadIdx.x] = kept[127 - threadIdx.x];\n}\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@triton.jit
def product(a, b, c, n: tl.constexpr):
    at = tl.arange(0, n)[:, None] * n + tl.arange(0, n)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.jit
def broken(x, n: tl.constexpr):
    for i in range(4):
        if i > 2:
            break
    tl.store(x, n)


@gluon.jit
def gluon_copy(x, y, n, block: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.program_id(0) * block + gl.arange(0, block, layout=layout)
    gl.store(y + at, gl.load(x + at, mask=at < n), mask=at < n)


def half(*shape):
    return torch.empty(shape, dtype=torch.float16, device="meta")


def forward_launch(d=64, block=64):
    function = lab_cells.solution("03.heads", "flash_forward")
    q = half(1, 2, 256, d)
    (launch,) = dry_run.launches(function, q, q, q, False, 0, 0.125, block, block)
    return launch


def test_a_dry_run_records_the_launch_of_huge_tensors_and_runs_nothing():
    launch = forward_launch()
    assert launch.name == "forward_kernel" and launch.grid == (4, 2, 1)
    assert launch.arguments["q_ptr"].type == "*fp16" and launch.arguments["block_q"].value == 64


@pytest.mark.alone
def test_six_architectures_each_with_its_own_matrix_instruction():
    table = resources(forward_launch())
    assert [row.arch for row in table] == list(ARCHITECTURES) and all(row.ok for row in table)
    assert [row.matrix for row in table] == ["mma.sync", "mma.sync", "mma.sync", "wgmma", "tcgen05", "mma.sync"]
    for row in table:
        assert 0 < row.registers <= 255 and row.shared > 0 and row.spills is not None and row.threads == 128
        assert row.copies == "cp.async" and row.load_bytes == 16 and row.occupancy.blocks >= 1
        assert 0.5 < row.listing.scheduled / row.listing.main.cycles < 5, "what nvdisasm prints is read"
    assert "sm_100" in str(table) and "<table>" in table._repr_html_()


def test_one_kernel_by_name_with_warps_and_stages():
    (row,) = resources(product, half(32, 32), half(32, 32), half(32, 32), n=32, archs=(80,), num_warps=2)
    assert row.ok and row.threads == 64 and row.matrix == "mma.sync"


def test_the_second_answer_comes_from_the_disk(monkeypatch):
    arguments = (product, half(32, 32), half(32, 32), half(32, 32), 32)
    first = resources(*arguments, archs=(80,))
    monkeypatch.setattr(compile_gate, "start", None)  # a compiler would be called in vain
    assert resources(*arguments, archs=(80,)) == first


def test_other_constants_are_another_question(monkeypatch):
    resources(product, half(32, 32), half(32, 32), half(32, 32), 32, archs=(80,))
    monkeypatch.setattr(compile_gate, "start", None)
    with pytest.raises(TypeError):
        resources(product, half(16, 16), half(16, 16), half(16, 16), 16, archs=(80,))


def test_a_refusal_shows_the_students_line():
    table = resources(broken, torch.zeros(4), 1, archs=(90,))
    assert not table[0].ok and "break" in table[0].line and "break" in str(table)


def test_too_much_shared_memory_is_a_refusal_with_figures():
    table = resources(forward_launch(d=128, block=128), archs=(86,), num_stages=4)
    assert table[0].kind == "refused" and "shared memory" in table[0].message and table[0].occupancy.blocks == 0


def test_cuda_text_compiles_too():
    pytest.importorskip("cuda.core")
    for row in cuda_resources(CUDA, "twice", threads=128, archs=(80, 90)):
        assert row.ok and row.shared == row.static_shared == 2048 and row.load_bytes == 16 and row.copies == "loads"
        assert row.occupancy.warps == 64 and row.matrix == "none"


def test_a_gluon_kernel_compiles_too():
    x = torch.empty(4096, device="meta")
    (row,) = resources(gluon_copy, x, x, 4096, 512, archs=(90,), num_warps=4)
    assert row.ok and row.threads == 128 and row.load_bytes == 16
