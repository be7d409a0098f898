"""The meter counts to the byte, stops before harm, and accuses nobody who did nothing wrong."""

from __future__ import annotations

import mmap
import time

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton import language
from triton.runtime import interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

from flashkit.instruments.meter import Meter
from flashkit.instruments.record import MeterStop


def metered(kernel, grid, *args, names=None, outputs=None, **kwargs):
    """Launch once under a meter and return the finished record."""
    with Meter(names) as meter:
        kernel[grid](*args, **kwargs)
    return meter.finish(outputs)


def stopped(kernel, grid, *args, names=None, **kwargs):
    """Launch a kernel that must be stopped and return the finding."""
    with Meter(names) as meter, pytest.raises(MeterStop) as stop:
        kernel[grid](*args, **kwargs)
    record = meter.finish()
    assert record.findings[-1] is stop.value.finding and not record.launches[-1].finished
    return stop.value.finding


def kinds(record):
    return [f.kind for f in record.findings]


@triton.jit
def add(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=0.0) + tl.load(y + i, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def copy_rows(
    x, out, x_h, x_n, o_h, o_n, load_rows, store_rows, columns,
    block: tl.constexpr, d: tl.constexpr,
):  # fmt: skip
    h, i, j = tl.program_id(0), tl.arange(0, block)[:, None], tl.arange(0, d)[None, :]
    tile = tl.load(x + h * x_h + i * x_n + j, mask=(i < load_rows) & (j < columns), other=0.0)
    tl.store(out + h * o_h + i * o_n + j, tile, mask=(i < store_rows) & (j < columns))


def padded(heads, rows, d, row_gap=2, column_gap=0):
    """A (heads, rows, d) tensor with unused rows after each head and unused columns after each row."""
    return torch.full((heads, rows + row_gap, d + column_gap), float("nan"))[:, :rows, :d].fill_(1.0)


# -- traffic -----------------------------------------------------------------------------------------------------------


def test_bytes_are_those_of_unmasked_lanes():
    x, y, out = torch.ones(70), torch.ones(70), torch.empty(70)
    record = metered(add, (3,), x, y, out, 70, 32, names={"x": x, "y": y}, outputs={"o": out})
    assert out.eq(2).all() and record.findings == [] and record.undefined == []
    for name in "xy":
        assert (record.traffic[name].loaded, record.traffic[name].distinct_loaded) == (280, 280)
    o = record.traffic["o"]
    assert (o.stored, o.distinct_stored, o.loaded, o.atomic) == (280, 280, 0, 0)


@triton.jit
def forward(
    q, k, v, o, lse, q_h, q_n, k_h, k_n, n_q, n_k, scale,
    causal: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr, d: tl.constexpr,
):  # fmt: skip
    start, h, c = tl.program_id(0) * block_q, tl.program_id(1), tl.arange(0, d)
    i = start + tl.arange(0, block_q)
    q_tile = tl.load(q + h * q_h + i[:, None] * q_n + c[None, :], mask=(i < n_q)[:, None], other=0.0)
    m = tl.full((block_q,), -float("inf"), tl.float32)
    total = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d), tl.float32)
    end = tl.minimum(start + block_q, n_k) if causal else n_k
    for first in range(0, end, block_k):
        j = first + tl.arange(0, block_k)
        k_tile = tl.load(k + h * k_h + j[:, None] * k_n + c[None, :], mask=(j < n_k)[:, None], other=0.0)
        s = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        s = tl.where((j < n_k)[None, :], s, -float("inf"))
        if causal:
            s = tl.where(j[None, :] <= i[:, None], s, -float("inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p, alpha = tl.exp(s - new[:, None]), tl.exp(m - new)
        v_tile = tl.load(v + h * k_h + j[:, None] * k_n + c[None, :], mask=(j < n_k)[:, None], other=0.0)
        total, m = total * alpha + tl.sum(p, 1), new
        acc = acc * alpha[:, None] + tl.dot(p.to(v_tile.dtype), v_tile, input_precision="ieee")
    o_tile = (acc / total[:, None]).to(o.dtype.element_ty)
    tl.store(o + h * q_h + i[:, None] * q_n + c[None, :], o_tile, mask=(i < n_q)[:, None])
    tl.store(lse + h * n_q + i, m + tl.log(total), mask=i < n_q)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("n, block_q, block_k", [(70, 32, 16), (32, 16, 32), (45, 16, 16)])
def test_tiled_forward_equals_the_formula_to_the_byte(n, block_q, block_k, dtype, causal):
    heads, d = 2, 16
    q, k, v = (torch.randn(1, heads, n + 3, d, dtype=dtype)[:, :, :n] for _ in range(3))
    with Meter({"q": q, "k": k, "v": v}) as meter:
        o, lse = torch.empty_strided(q.shape, q.stride(), dtype=dtype), torch.empty(1, heads, n)
        strides = (*q.stride()[1:3], *k.stride()[1:3])
        forward[(triton.cdiv(n, block_q), heads)](
            q, k, v, o, lse, *strides, n, n, d**-0.5, causal, block_q, block_k, d, num_warps=4
        )
    record = meter.finish({"o": o, "lse": lse})
    assert record.findings == [] and record.undefined == [] and not record.locked
    assert record.written_by_kernel(o).all() and record.written_by_kernel(lse).all()
    ends = [min(start + block_q, n) if causal else n for start in range(0, n, block_q)]
    keys = sum(min(-(-end // block_k) * block_k, n) for end in ends)  # a tile that is started is loaded up to N
    size, traffic = q.element_size(), record.traffic
    assert traffic["q"].loaded == traffic["q"].distinct_loaded == heads * n * d * size
    assert traffic["k"].loaded == traffic["v"].loaded == heads * keys * d * size
    assert traffic["k"].distinct_loaded == heads * n * d * size
    assert traffic["o"].stored == traffic["o"].distinct_stored == heads * n * d * size
    assert traffic["lse"].stored == heads * n * 4
    assert sum(e.bytes for e in record.events if e.tensor == "k") == traffic["k"].loaded
    rows = {(e.lowest_row, e.highest_row) for e in record.events if e.tensor in ("q", "o")}
    assert rows == {(start, min(start + block_q, n) - 1) for start in range(0, n, block_q)}


def test_the_meter_costs_less_than_the_interpreter_itself():
    q = torch.randn(1, 1, 256, 64)

    def launch():
        o, lse = torch.empty_like(q), torch.empty(256)
        forward[(4, 1)](q, q, q, o, lse, 0, 64, 0, 64, 256, 256, 0.125, False, 64, 64, 64)

    def seconds(metered):
        start = time.process_time()
        if metered:
            with Meter({"q": q}) as meter:
                launch()
            meter.finish()
        else:
            launch()
        return time.process_time() - start

    launch()
    times = [(seconds(False), seconds(True)) for _ in range(4)]
    assert min(t for _, t in times) < 2 * min(t for t, _ in times)


@triton.jit
def descriptor_copy(x, out, rows, columns, block: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [block, block])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [block, block])
    place = [tl.program_id(0) * block, 0]
    target.store(place, source.load(place))


@triton.jit
def host_descriptor_copy(source, target, block: tl.constexpr):
    place = [tl.program_id(0) * block, 0]
    target.store(place, source.load(place))


def test_descriptors_count_what_lies_inside_and_their_zero_padding_accuses_nobody():
    x, out = torch.randn(20, 12), torch.zeros(20, 12)
    record = metered(descriptor_copy, (2,), x, out, 20, 12, 16, names={"x": x, "out": out})
    assert torch.equal(x, out) and record.findings == [] and record.undefined == []
    assert record.traffic["x"].loaded == record.traffic["out"].stored == 960
    out.zero_()
    pair = [TensorDescriptor.from_tensor(t, [16, 16]) for t in (x, out)]
    record = metered(host_descriptor_copy, (2,), *pair, 16, names={"x": x, "out": out})
    assert torch.equal(x, out) and record.findings == []
    assert record.traffic["x"].loaded == record.traffic["out"].stored == 960
    assert record.launches[0].arguments["source"].type == "tensordesc<fp32[16, 16]>"


def test_descriptor_with_a_shape_too_large_is_stopped():
    x, out = torch.randn(20, 12), torch.zeros(24, 12)
    finding = stopped(descriptor_copy, (2,), x, out, 24, 12, 16, names={"x": x, "out": out})
    assert (finding.tensor, finding.index, finding.program) == ("x", (20, 0), (1, 0, 0))


@triton.jit
def gather_rows(source, rows, target, count: tl.constexpr, width: tl.constexpr):
    picked = source.gather(tl.load(rows + tl.arange(0, count)), 0)
    target.scatter(picked, tl.arange(0, count), 0)


def test_descriptor_gather_and_scatter_are_counted():
    x, out = torch.randn(32, 16), torch.zeros(8, 16)
    rows = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6], dtype=torch.int32)
    pair = [TensorDescriptor.from_tensor(t, [1, 16]) for t in (x, out)]
    record = metered(gather_rows, (1,), pair[0], rows, pair[1], 8, 16, names={"x": x, "out": out})
    assert torch.equal(out, x[rows.long()]) and record.findings == []
    assert (record.traffic["x"].loaded, record.traffic["x"].distinct_loaded) == (8 * 64, 7 * 64)
    assert record.traffic["out"].stored == 8 * 64


@pytest.mark.skipif(triton.__version__ >= "3.9", reason="not run here: triton 3.9 has no block pointers")
@pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")
def test_block_pointers_are_counted_and_their_missing_padding_is_noted():
    x, out = torch.randn(20, 12), torch.zeros(20, 12)
    record = metered(block_pointer_copy, (2,), x, out, 20, 12, 16, "zero", names={"x": x, "out": out})
    assert torch.equal(x, out) and record.findings == [] and record.undefined == []
    assert record.traffic["x"].loaded == record.traffic["out"].stored == 960
    record = metered(block_pointer_copy, (2,), x, out, 20, 12, 16, "", names={"x": x, "out": out})
    assert [f.tensor for f in record.undefined] == ["x"]


@triton.jit
def block_pointer_copy(x, out, rows, columns, block: tl.constexpr, padding: tl.constexpr):
    i = tl.program_id(0) * block
    source = tl.make_block_ptr(x, (rows, columns), (columns, 1), (i, 0), (block, block), (1, 0))
    target = tl.make_block_ptr(out, (rows, columns), (columns, 1), (i, 0), (block, block), (1, 0))
    tile = tl.load(source, boundary_check=(0, 1), padding_option=padding)
    tl.store(target, tile, boundary_check=(0, 1))


def test_views_of_one_storage_keep_their_own_counts():
    packed = torch.randn(3, 8, 16)
    q, k, v = packed
    out = torch.empty(8, 16)
    record = metered(add, (4,), q, v, out, 128, 32, names={"q": q, "k": k, "v": v}, outputs={"o": out})
    assert [record.traffic[n].loaded for n in "qkv"] == [512, 0, 512]
    whole = metered(add, (4,), packed, packed, out, 128, 32, names={"q": q, "k": k, "v": v})
    assert [whole.traffic[n].loaded for n in "qkv"] == [1024, 0, 0]


@triton.jit
def read_halves(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, tl.load(x.to(tl.pointer_type(tl.int16)) + i))


def test_a_pointer_of_another_width_is_counted_in_bytes():
    x, out = torch.arange(4, dtype=torch.int32), torch.empty(8, dtype=torch.int16)
    record = metered(read_halves, (1,), x, out, 8, names={"x": x}, outputs={"o": out})
    assert (record.traffic["x"].loaded, record.traffic["x"].distinct_loaded) == (16, 16) and record.findings == []
    assert stopped(read_halves, (1,), x[:3], out, 8).index == (3,)


# -- outside -----------------------------------------------------------------------------------------------------------


def test_a_store_past_the_end_is_stopped_before_it_happens():
    ground = torch.zeros(64)
    out, x = ground[:40], torch.ones(64)
    finding = stopped(add, (2,), x, x, out, 64, 32, names={"x": x, "out": out})
    assert (finding.kind, finding.tensor, finding.index, finding.access) == ("outside", "out", (40,), "store")
    assert (finding.program, finding.kernel, finding.overflow) == ((1, 0, 0), "add", False)
    assert finding.line.startswith("tl.store(out + i, tl.load(x + i") and finding.filename == __file__
    assert finding.lineno and "out[40]" in finding.detail
    assert ground[:32].eq(2).all() and ground[32:].eq(0).all()


def test_a_row_too_many_is_told_from_a_column_too_many():
    x, out = padded(3, 5, 8, column_gap=4), torch.zeros(3, 5, 8)
    strides = (*x.stride()[:2], *out.stride()[:2])
    assert stopped(copy_rows, (3,), x, out, *strides, 8, 5, 8, 8, 8, names={"x": x}).index == (0, 5, 0)
    wide = torch.zeros(3, 5, 16)
    strides = (*x.stride()[:2], *wide.stride()[:2])
    assert stopped(copy_rows, (3,), x, wide, *strides, 5, 5, 9, 8, 16, names={"x": x}).index == (0, 0, 8)


def test_padding_between_heads_is_outside_and_the_elements_around_it_are_not():
    x, out = padded(2, 5, 8), torch.zeros(2, 5, 8)
    strides = (*x.stride()[:2], *out.stride()[:2])
    record = metered(copy_rows, (2,), x, out, *strides, 5, 5, 8, 8, 8, names={"x": x, "out": out})
    assert record.findings == [] and torch.equal(x, out)
    assert stopped(copy_rows, (2,), x, out, *strides, 6, 5, 8, 8, 8, names={"x": x}).index == (0, 5, 0)


def test_a_stride_taken_from_another_tensor_is_stopped():
    x, out = padded(2, 5, 8, row_gap=9), torch.zeros(2, 5, 8)
    finding = stopped(copy_rows, (2,), x, out, *x.stride()[:2], *x.stride()[:2], 5, 5, 8, 8, 8, names={"out": out})
    assert (finding.tensor, finding.access, finding.program) == ("out", "store", (1, 0, 0))


def test_a_kernel_that_takes_an_expanded_tensor_for_a_contiguous_one_is_stopped():
    finding = stopped(add, (1,), torch.ones(1).expand(4), torch.ones(4), torch.zeros(4), 4, 4)
    assert finding.tensor == "x" and "strides that are not its own: they are (0,)" in finding.detail


def test_a_negative_row_is_stopped_in_its_own_coordinates():
    ground = torch.zeros(10, 8)
    x, out = ground[4:], torch.zeros(6, 8)
    finding = stopped(row_before, (1,), x, out, 8, names={"x": x})
    assert (finding.tensor, finding.index) == ("x", (-1, 0))


@triton.jit
def row_before(x, out, d: tl.constexpr):
    i, j = tl.arange(0, 4)[:, None], tl.arange(0, d)[None, :]
    tl.store(out + i * d + j, tl.load(x + (i - 1) * d + j))


def test_transposed_and_expanded_tensors_are_inside():
    x = torch.randn(6, 4)
    out = torch.zeros(4, 6)
    record = metered(copy_strided, (1,), x.T, out, *x.T.stride(), 4, 6, 4, 8, names={"x": x}, outputs={"o": out})
    assert record.findings == [] and torch.equal(out, x.T) and record.traffic["x"].loaded == 96
    row = torch.randn(6).expand(4, 6)
    record = metered(copy_strided, (1,), row, out, *row.stride(), 4, 6, 4, 8, names={"row": row})
    assert record.findings == [] and torch.equal(out, row)
    windows = torch.arange(9.0).as_strided((4, 6), (1, 1))
    record = metered(copy_strided, (1,), windows, out, 1, 1, 4, 6, 4, 8, names={"windows": windows})
    assert record.findings == [] and torch.equal(out, windows)


@triton.jit
def copy_strided(x, out, s0, s1, rows, columns, block_0: tl.constexpr, block_1: tl.constexpr):
    i, j = tl.arange(0, block_0)[:, None], tl.arange(0, block_1)[None, :]
    keep = (i < rows) & (j < columns)
    tl.store(out + i * columns + j, tl.load(x + i * s0 + j * s1, mask=keep, other=0.0), mask=keep)


def reserve(nbytes):
    """Float32 storage of which no page exists until it is touched."""
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)
    return torch.frombuffer(
        mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve), dtype=torch.float32
    )


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


@triton.jit
def one_row_a_head(x, out, stride, wide: tl.constexpr, d: tl.constexpr):
    h, j = tl.program_id(0), tl.arange(0, d)
    if wide:
        h = h.to(tl.int64)
    tl.store(out + tl.program_id(0) * d + j, tl.load(x + h * stride + j))


def test_a_wrapped_offset_is_called_overflow_and_int64_is_right():
    x = reserve(13 << 30).as_strided((3, 16), (3 << 29, 1)).fill_(1.0)
    out = torch.zeros(3, 16)
    finding = stopped(one_row_a_head, (3,), x, out, x.stride(0), False, 16, names={"x": x})
    assert (finding.tensor, finding.index, finding.program) == ("x", (2, 0), (2, 0, 0))
    assert finding.overflow and "int64" in finding.detail
    record = metered(one_row_a_head, (3,), x, out, x.stride(0), True, 16, names={"x": x})
    assert record.findings == [] and out.eq(1).all() and record.traffic["x"].distinct_loaded == 192


def test_giant_strides_touch_few_pages():
    x = reserve(6 << 30).as_strided((2, 16), (1 << 30, 1)).fill_(1.0)
    out = torch.zeros(2, 16)
    before = resident()
    record = metered(one_row_a_head, (2,), x, out, x.stride(0), True, 16, names={"x": x}, outputs={"o": out})
    assert record.findings == [] and resident() - before < 32 << 20


# -- initialised, written ----------------------------------------------------------------------------------------------


@triton.jit
def accumulate(x, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(out + i, mask=i < n, other=0.0) + tl.load(x + i, mask=i < n, other=0.0), mask=i < n)


def test_reading_torch_empty_before_writing_is_found():
    x = torch.ones(40)
    for allocate in (
        lambda: torch.empty(40), lambda: torch.empty_like(x), lambda: x.new_empty(40),
        lambda: torch.empty_strided((40,), (1,)), lambda: torch.Tensor(40),
    ):  # fmt: skip
        with Meter({"x": x}) as meter:
            out = allocate()
            accumulate[(2,)](x, out, 40, 32)
        record = meter.finish({"o": out})
        finding = record.findings[0]
        assert kinds(record) == ["uninitialised"] and out.isnan().all()
        assert (finding.tensor, finding.index, finding.access) == ("o", (0,), "load") and "o[0]" in finding.detail


@pytest.mark.parametrize("how", ["zeros", "zero_", "fill_", "copy_", "out", "numpy", "kernel"])
def test_reading_what_was_initialised_accuses_nobody(how):
    x = torch.ones(40)
    with Meter({"x": x}) as meter:
        out = torch.zeros(40) if how == "zeros" else torch.empty(40)
        if how == "zero_":
            out.zero_()
        elif how == "fill_":
            out[:].fill_(0.0)
        elif how == "copy_":
            out.copy_(torch.zeros(40))
        elif how == "out":
            torch.sub(x, x, out=out)
        elif how == "numpy":
            out.numpy()[:] = 0.0
        elif how == "kernel":
            add[(2,)](x, -x, out, 40, 32)
        accumulate[(2,)](x, out, 40, 32)
    record = meter.finish({"o": out})
    assert record.findings == [] and out.eq(1).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.bool, torch.float8_e4m3fn])
def test_every_dtype_can_be_poisoned(dtype):
    with Meter():
        out = torch.empty(4, dtype=dtype)
    assert not out.float().eq(0).any()


def test_elements_no_kernel_stored_to_are_unwritten():
    x = torch.ones(40)
    for out, words in ((None, "torch.empty"), (torch.zeros(40), "PyTorch")):
        with Meter({"x": x}) as meter:
            out = torch.empty(40) if out is None else out
            add[(1,)](x, x, out, 40, 32)
        record = meter.finish({"o": out})
        finding = record.findings[0]
        assert kinds(record) == ["unwritten"] and (finding.tensor, finding.index) == ("o", (32,))
        assert "8 of 40" in finding.detail and words in finding.detail
        assert record.written_by_kernel(out).tolist() == [True] * 32 + [False] * 8


@pytest.mark.parametrize("how", ["add_", "copy_", "out", "numpy", "data", "setitem"])
def test_the_last_writer_counts(how):
    x = torch.ones(40)
    with Meter({"x": x}) as meter:
        out = torch.empty(40)
        add[(2,)](x, x, out, 40, 32)
        tail = out[32:]
        if how == "add_":
            tail.add_(1.0)
        elif how == "copy_":
            tail.copy_(torch.zeros(8))
        elif how == "out":
            torch.mul(tail, 2.0, out=tail)
        elif how == "numpy":
            out.numpy()[32:] = 5.0
        elif how == "data":
            out.data[32:] = 5.0
        else:
            out[32:] = 5.0
    record = meter.finish({"o": out})
    assert record.written_by_kernel(out).tolist() == [True] * 32 + [False] * 8
    assert record.findings == []  # written, though not by a kernel


def test_a_returned_view_of_what_the_kernel_wrote_is_resolved():
    x = torch.ones(4, 6)
    with Meter({"x": x}) as meter:
        buffer = torch.empty(4, 8)
        copy_rows[(1,)](x, buffer, 24, 6, 32, 8, 4, 4, 6, 4, 8)
        out = buffer[:, :6].T
    record = meter.finish({"o": out})
    assert record.findings == [] and record.written_by_kernel(out).shape == (6, 4)
    assert record.written_by_kernel(out).all() and record.written_by_kernel(buffer).sum() == 24
    assert record.traffic["o"].stored == 96 and not record.written_by_kernel(out.clone()).any()


# -- races -------------------------------------------------------------------------------------------------------------


@triton.jit
def sum_rows(x, out, d: tl.constexpr, atomic: tl.constexpr):
    j = tl.arange(0, d)
    row = tl.load(x + tl.program_id(0) * d + j)
    if atomic:
        tl.atomic_add(out + j, row)
    else:
        tl.store(out + j, tl.load(out + j) + row)


def test_programs_that_share_an_element_without_an_atomic_race():
    x, out = torch.ones(3, 8), torch.zeros(8)
    record = metered(sum_rows, (3,), x, out, 8, False, names={"x": x, "out": out})
    assert kinds(record) == ["race"] and not record.locked
    finding = record.findings[0]
    assert (finding.tensor, finding.index, finding.program, finding.other_program) == (
        "out", (0,), (1, 0, 0), (0, 0, 0),
    )  # fmt: skip
    assert finding.access == "load" and "tl.store(out + j" in finding.line


def test_atomics_of_several_programs_do_not_race_and_are_counted():
    x, out = torch.ones(3, 8), torch.zeros(8)
    record = metered(sum_rows, (3,), x, out, 8, True, names={"x": x, "out": out})
    assert record.findings == [] and not record.locked and out.eq(3).all()
    assert (record.traffic["out"].atomic, record.traffic["out"].stored, record.traffic["out"].loaded) == (96, 0, 0)


def test_atomics_on_torch_empty_read_what_nobody_wrote():
    x = torch.ones(3, 8)
    with Meter({"x": x}) as meter:
        out = torch.empty(8)
        sum_rows[(3,)](x, out, 8, True)
    assert kinds(meter.finish({"o": out})) == ["uninitialised"]


def test_one_program_may_read_back_its_own_store_and_launches_are_apart():
    x, out = torch.ones(1, 8), torch.zeros(8)
    with Meter({"x": x, "out": out}) as meter:
        for _ in range(3):
            sum_rows[(1,)](x, out, 8, False)
    assert meter.finish().findings == [] and out.eq(3).all()


@triton.jit
def broadcast_row(x, out, d: tl.constexpr):
    j = tl.arange(0, d)
    tl.store(out + tl.program_id(0) * d + j, tl.load(x + j))


@triton.jit
def with_another_name(x, out, d: language.constexpr):
    j = language.arange(0, d)
    language.store(out + j, language.load(x + j))


def test_constexpr_may_have_another_name():
    """`import triton.language as T` and `d: T.constexpr`, which Triton's interpreter alone does not know."""
    x, out = torch.ones(8), torch.zeros(8)
    assert metered(with_another_name, (1,), x, out, 8).findings == [] and out.eq(1).all()


def test_many_programs_may_read_one_element():
    x, out = torch.ones(8), torch.empty(3, 8)
    record = metered(broadcast_row, (3,), x, out, 8, names={"x": x}, outputs={"o": out})
    assert record.findings == [] and (record.traffic["x"].loaded, record.traffic["x"].distinct_loaded) == (96, 32)


@triton.jit
def shift(x, d: tl.constexpr, n):
    p = tl.program_id(0)
    if p < n - 1:
        tl.store(x + p, tl.load(x + p + 1))


def test_a_store_to_what_another_program_read_before_is_a_race():
    x = torch.arange(4.0)
    record = metered(shift, (4,), x, 1, 4, names={"x": x})
    finding = record.findings[0]
    assert kinds(record) == ["race"] and finding.access == "store" and finding.index == (1,)
    assert (finding.program, finding.other_program) == ((1, 0, 0), (0, 0, 0))


@triton.jit
def locked_sum(x, out, lock, d: tl.constexpr):
    j = tl.arange(0, d)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + j, tl.load(out + j) + tl.load(x + tl.program_id(0) * d + j))
    tl.atomic_xchg(lock, 0)


@triton.jit
def last_one_adds(x, parts, counter, out, n, d: tl.constexpr):
    j, p = tl.arange(0, d), tl.program_id(0)
    tl.store(parts + p * d + j, tl.load(x + p * d + j))
    if tl.atomic_add(counter, 1) == n - 1:
        total = tl.zeros((d,), tl.float32)
        for other in range(n):
            total += tl.load(parts + other * d + j)
        tl.store(out + j, total)


def test_what_a_lock_or_a_semaphore_guards_is_not_judged():
    x, out, lock = torch.ones(3, 8), torch.zeros(8), torch.zeros(1, dtype=torch.int32)
    record = metered(locked_sum, (3,), x, out, lock, 8)
    assert record.locked and record.findings == [] and out.eq(3).all()
    with Meter({"x": x}) as meter:
        parts, total = torch.empty(3, 8), torch.empty(8)
        last_one_adds[(3,)](x, parts, torch.zeros(1, dtype=torch.int32), total, 3, 8)
    record = meter.finish({"o": total})
    assert record.locked and record.findings == [] and total.eq(3).all()


@triton.jit
def flag_passing(x, out, flag, d: tl.constexpr):
    j = tl.arange(0, d)
    if tl.program_id(0) == 0:
        tl.store(out + j, tl.load(x + j))
        tl.atomic_store(flag, 1)
    elif tl.atomic_load(flag) == 1:
        tl.store(out + d + j, tl.load(out + j))


@pytest.mark.skipif(not hasattr(tl, "atomic_load"), reason="not run here: atomic loads and stores need triton 3.9")
def test_atomic_loads_and_stores_order_programs():
    x, out, flag = torch.ones(8), torch.zeros(16), torch.zeros(1, dtype=torch.int32)
    record = metered(flag_passing, (2,), x, out, flag, 8, names={"flag": flag})
    assert record.locked and record.findings == [] and out.eq(1).all()
    assert record.traffic["flag"].atomic == 8 and record.traffic["flag"].loaded == 0


# -- undefined lanes ---------------------------------------------------------------------------------------------------


@triton.jit
def load_without_other(x, out, n, block: tl.constexpr):
    i = tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, mask=i < n))


def test_lanes_of_a_load_without_other_hold_the_undefined_value():
    for x, odd in ((torch.ones(5), None), (torch.ones(5, dtype=torch.int32), 2**31 - 1), (torch.ones(5).half(), None)):
        out = torch.zeros(8, dtype=x.dtype)
        record = metered(load_without_other, (1,), x, out, 5, 8, names={"x": x})
        assert [(f.kind, f.tensor, f.index) for f in record.undefined] == [("undefined", "x", (5,))]
        assert record.findings == [] and out[:5].eq(1).all()
        assert (out[5:].isnan() if odd is None else out[5:].eq(odd)).all()
    with Meter(undefined=None) as meter:
        load_without_other[(1,)](x, out, 5, 8)
    assert out[5:].eq(0).all() and len(meter.finish().undefined) == 1


def test_a_mask_that_keeps_every_lane_needs_no_other():
    record = metered(load_without_other, (1,), torch.ones(8), torch.zeros(8), 8, 8)
    assert record.undefined == []


# -- launches ----------------------------------------------------------------------------------------------------------


@triton.jit
def many_kinds(x, desc, n, one, big: tl.int64, f, nothing, table, plain: tl.constexpr, block: tl.constexpr = 16):
    pass


def test_a_launch_records_what_the_compiler_would_be_given():
    x = torch.empty(32, 16, dtype=torch.float16)
    desc = TensorDescriptor.from_tensor(x, [16, 16])
    record = metered(
        many_kinds, lambda meta: (meta["block"] // 8, 3), x, desc, 5, 1, 7, 0.5, None, (x, 2),
        plain="hot", num_warps=8, num_stages=3,
    )  # fmt: skip
    launch = record.launches[0]
    types = {name: a.type for name, a in launch.arguments.items()}
    assert types == {
        "x": "*fp16", "desc": "tensordesc<fp16[16, 16]>", "n": "i32", "one": "constexpr", "big": "i64", "f": "fp32",
        "nothing": "constexpr", "table": ("*fp16", "i32"), "plain": "constexpr", "block": "constexpr",
    }  # fmt: skip
    assert launch.arguments["one"].value == 1 and launch.arguments["plain"].value == "hot"
    assert launch.arguments["block"].value == 16 and launch.arguments["x"].aligned
    assert launch.options == {"num_warps": 8, "num_stages": 3}
    assert (launch.kernel, launch.name, launch.grid, launch.finished) == (many_kinds, "many_kinds", (2, 3, 1), True)


def test_a_grid_of_no_programs_is_recorded_and_harmless():
    x = torch.ones(8)
    record = metered(add, (0,), x, x, x, 8, 8, names={"x": x})
    assert record.launches[0].grid == (0, 1, 1) and record.traffic["x"].loaded == 0 and record.findings == []


@triton.jit
def load_helper(x, i):
    return tl.load(x + i)


@triton.jit
def calls_a_helper(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, load_helper(x, i))


def test_an_error_in_a_helper_is_blamed_on_the_helpers_line():
    finding = stopped(calls_a_helper, (1,), torch.ones(6), torch.ones(8), 8)
    assert finding.line == "return tl.load(x + i)" and finding.kernel == "calls_a_helper" and finding.tensor == "x"


def test_autotune_with_one_config_and_keyword_arguments_are_metered():
    tuned = triton.autotune([triton.Config({"block": 16}, num_warps=2)], key=[])(add)
    x, out = torch.ones(20), torch.empty(20)
    with Meter({"x": x}) as meter:
        tuned[lambda meta: (triton.cdiv(20, meta["block"]),)](x, y=x, out=out, n=20)
    record = meter.finish({"o": out})
    assert record.findings == [] and record.traffic["x"].loaded == 160 and record.launches[0].options["num_warps"] == 2


# -- PyTorch -----------------------------------------------------------------------------------------------------------


def test_products_softmax_and_attention_of_torch_are_listed():
    q = torch.randn(1, 1, 4, 8)
    with Meter() as meter:
        q @ q.mT
        torch.softmax(q, -1)
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
        torch.einsum("bhid,bhjd->bhij", q, q)
        (q * 2.0).contiguous().sum()
        torch.arange(4) * 2 + torch.tensor(1.0) * 3  # bookkeeping: integers, or a single number
    names = meter.finish().torch_operators
    assert "bmm" in names and "_softmax" in names and any("scaled_dot_product" in n for n in names)
    assert names[-2:] == ["mul", "sum"] and len(names) == 6


# -- the meter leaves no trace -----------------------------------------------------------------------------------------


@triton.jit
def breaks_in_the_middle(x, n: tl.constexpr):
    tl.store(x + tl.program_id(0), 1.0)
    if tl.program_id(0) == 1:
        tl.static_assert(False, "broken")


def patchable():
    return (
        dict(vars(interpreter.interpreter_builder)).keys() - {"grid_dim", "grid_idx"},
        interpreter.InterpretedFunction.run, interpreter.GridExecutor._init_args_hst,
    )  # fmt: skip


def test_a_call_inside_an_autograd_function_is_metered():
    class Add(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = torch.empty_like(x)
            add[(1,)](x, x, out, 4, 4)
            return out

        @staticmethod
        def backward(ctx, gradient):
            back = torch.empty_like(gradient)
            add[(1,)](gradient, gradient, back, 4, 4)
            return back

    x = torch.ones(4, requires_grad=True)
    with Meter({"x": x}) as meter:
        torch.empty(2, requires_grad=True)
        (dx,) = torch.autograd.grad(Add.apply(x), x, torch.ones(4))
    record = meter.finish({"dx": dx})
    assert record.findings == [] and len(record.launches) == 2 and dx.eq(2).all()
    assert record.written_by_kernel(dx).all()


def test_every_patch_is_undone_also_after_an_exception():
    before, x = patchable(), torch.zeros(4)
    with Meter() as meter, pytest.raises(Exception, match="broken"):
        breaks_in_the_middle[(4,)](x, 4)
    assert patchable() == before and meter.finish().findings == [] and not meter.record.launches[0].finished
    with pytest.raises(KeyError), Meter():
        raise KeyError
    stopped(add, (2,), x, x, x, 8, 4)
    assert patchable() == before
    empty = torch.empty(3).fill_(1.0)
    add[(1,)](empty, empty, empty, 3, 4)
    assert empty.eq(2).all()


def test_a_kernel_after_one_that_broke_is_metered_and_meters_nest():
    x, out = torch.ones(4), torch.zeros(4)
    with Meter({"x": x}) as outer:
        with pytest.raises(Exception, match="broken"):
            breaks_in_the_middle[(4,)](torch.zeros(4), 4)
        with Meter({"x": x}) as inner:
            add[(1,)](x, x, out, 4, 4)
        add[(1,)](x, x, out, 4, 4)
    assert inner.finish().traffic["x"].loaded == 32 and outer.finish().traffic["x"].loaded == 64


def test_without_the_interpreter_the_meter_refuses(monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1"), Meter():
        pass


def test_scalar_and_empty_tensors_are_named_without_harm():
    x = {"empty": torch.empty(0, 4), "scalar": torch.tensor(3.0), "none": None}
    with Meter(x) as meter:
        torch.empty(0)
    record = meter.finish({"o": torch.empty(0, 2)})
    assert record.findings == [] and record.traffic["scalar"].loaded == 0
    assert np.array_equal(record.written_by_kernel(x["scalar"]), np.array(False))


@triton.jit
def doubled(x, y):
    lanes = tl.arange(0, 16)
    tl.store(y + lanes, tl.load(x + lanes) + tl.load(x + lanes))


def test_bf16_arithmetic_is_refused_with_the_cure_and_only_while_metered():
    x, y = torch.ones(16, dtype=torch.bfloat16), torch.empty(16)
    with pytest.raises(Exception, match="use fp16 or fp32 inputs on a CPU"), Meter(names={"x": x}):
        doubled[(1,)](x, y)
    with Meter(names={"y": y}):
        doubled[(1,)](torch.ones(16, dtype=torch.float16), y)
    assert (y == 2).all()
