"""The ledger against the meter: real kernels ask for exactly the bytes that it says, tensor by tensor."""

import pytest
import torch

import flashkit  # noqa: F401  comes before triton
from flashkit.exercises.lab_cells import solution
from flashkit.instruments.meter import Meter
from reference import traffic
from reference.traffic import Shape, by_tensor, fa1_blocks
from tests.reference import ledger_kernels


def metered(function, tensors, outputs=(), /, **options):
    """Bytes by tensor name; scratch tensors, which have no name, together as "*". Also what came back."""
    with Meter(names=tensors) as meter:
        result = function(*tensors.values(), **options)
    named = dict(zip(outputs, result if isinstance(result, tuple) else (result,), strict=True)) if outputs else {}
    record = meter.finish(outputs=named)
    assert not record.findings
    moved = {}
    for name, t in record.traffic.items():
        name = name if name in tensors or name in outputs else "*"
        moved[name] = moved.get(name, 0) + t.loaded + t.stored + t.atomic
    return moved, result


@pytest.mark.parametrize(
    ("N_q", "N_k", "d", "d_v"), [(32, 32, 16, 16), (37, 53, 16, 32), (1, 1, 16, 16), (41, 71, 32, 16)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
def test_naive_attention_in_three_kernels(N_q, N_k, d, d_v, dtype):
    naive_attention = solution("01.naive_attention", "naive_attention")
    tensors = {"q": torch.randn(N_q, d), "k": torch.randn(N_k, d), "v": torch.randn(N_k, d_v)}
    tensors = {name: x.to(dtype) for name, x in tensors.items()}
    moved, _ = metered(naive_attention, tensors, ("o",), block_q=16, block_k=32)
    ledger = by_tensor(traffic.naive(Shape(N_q, N_k, d, d_v, 16, 32, dtype.itemsize)))
    assert moved == {**{name: ledger[name] for name in "qkvo"}, "*": ledger["s"] + ledger["p"]}


@pytest.mark.parametrize("itemsize", [4, 2])
@pytest.mark.parametrize(("rows", "columns"), [(4, 64), (5, 77), (3, 1)])
def test_row_softmax_is_one_read_and_one_write(rows, columns, itemsize):
    row_softmax = solution("01.softmax", "row_softmax")
    x = torch.randn(rows, columns).to(torch.float32 if itemsize == 4 else torch.float16)
    moved, _ = metered(row_softmax, {"x": x}, ("y",))
    assert sum(moved.values()) == 2 * rows * columns * itemsize and moved["x"] == moved["y"]


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_flash_attention_2s_order(causal):
    flash_forward = solution("03.heads", "flash_forward")
    s = Shape(40, 70, 16, 32, 32, 16, itemsize=4, B=2, H_q=4, H_kv=2, causal=causal, offset=30)
    shapes = {"q": (2, 4, 40, 16), "k": (2, 2, 70, 16), "v": (2, 2, 70, 32)}
    tensors = {name: torch.randn(shape) for name, shape in shapes.items()}
    options = dict(causal=causal, offset=30, scale=0.25, block_q=32, block_k=16)
    moved, _ = metered(flash_forward, tensors, ("o", "lse"), **options)
    assert moved == by_tensor(traffic.fa2(s))


def attention(tensors):
    q, k, v = (tensors[name].double() for name in "qkv")
    return torch.softmax(q @ k.T * q.shape[1] ** -0.5, 1) @ v


def test_flash_attention_1s_order():
    tensors = ledger_kernels.inputs(37, 53, 16, 32)
    moved, _ = metered(ledger_kernels.fa1, tensors, block_q=16, block_k=32)
    assert moved == by_tensor(traffic.fa1(Shape(37, 53, 16, 32, 16, 32, itemsize=4)))
    torch.testing.assert_close(tensors["o"].double(), attention(tensors), atol=1e-5, rtol=1e-5)


def test_fused_softmax():
    tensors = ledger_kernels.inputs(37, 53, 16, 32)
    given = {name: tensors[name] for name in "qkv"} | {"p": torch.empty(37, 53), "o": tensors["o"]}
    moved, _ = metered(ledger_kernels.fused_softmax, given, block_q=16)
    assert moved == by_tensor(traffic.fused_softmax(Shape(37, 53, 16, 32, 16, 32, itemsize=4)))
    torch.testing.assert_close(given["o"].double(), attention(tensors), atol=1e-5, rtol=1e-5)


N, D = 256, 16
MEMORIES = (1024, 2048, 4096, 8192)  # elements


def test_the_meter_sees_fa1_fall_with_m():
    constants = []
    for M in MEMORIES:
        block_q, block_k = fa1_blocks(M, D)
        moved, _ = metered(ledger_kernels.fa1, ledger_kernels.inputs(N, N, D, D), block_q=block_q, block_k=block_k)
        assert moved == by_tensor(traffic.fa1(Shape(N, N, D, D, block_q, block_k, itemsize=4)))
        elements = sum(moved[name] for name in "qkvo") / 4
        constants.append(elements / (N * N * D * D / M))
    assert max(constants) / min(constants) < 1.6  # the 2 N d of K and V do not fall


def test_the_meter_sees_fa2_fall_with_block_q():
    rows = solution("03.rows", "attention_rows")
    for block_q in (16, 32, 64, 128):
        tensors = {name: torch.randn(N, D) for name in "qkv"}
        moved, _ = metered(rows, tensors, ("o",), block_q=block_q, block_k=64)
        assert sum(moved.values()) == 4 * (2 * N * D + 2 * N * N * D // block_q)
