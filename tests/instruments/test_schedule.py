"""Who did which tile, as read from the meter's events of small kernels."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from flashkit.instruments.meter import Meter
from flashkit.instruments.schedule import COLUMNS, schedule


@triton.jit
def copy_kernel(
    k_ptr, o_ptr, counter_ptr, tiles, N, d: tl.constexpr, block: tl.constexpr, asks: tl.constexpr, halves: tl.constexpr
):
    cols = tl.arange(0, d)
    n = tl.program_id(0) + tl.num_programs(0) * tl.program_id(1)
    if asks:
        n = tl.atomic_add(counter_ptr, 1)
    while n < tiles:
        rows = n % 2 * block + tl.arange(0, block)
        at = (n // 2 * N + rows[:, None]) * d + cols[None, :]
        x = tl.load(k_ptr + at, mask=rows[:, None] < N, other=0.0)
        if halves:
            tl.store(o_ptr + at, x, mask=(rows[:, None] < N) & (cols[None, :] < d // 2))
            tl.store(o_ptr + at, x, mask=(rows[:, None] < N) & (cols[None, :] >= d // 2))
        else:
            tl.store(o_ptr + at, x, mask=rows[:, None] < N)
        if asks:
            n = tl.atomic_add(counter_ptr, 1)
        else:
            n += tl.num_programs(0) * tl.num_programs(1)


def visits(grid, asks=False, halves=False):
    """2 batches of 2 heads of 13 rows, in tiles of 8: 8 tiles."""
    k, o, counter = torch.randn(2, 2, 13, 16), torch.empty(2, 2, 13, 16), torch.zeros(1, dtype=torch.int32)
    with Meter(names={"k": k}) as meter:
        copy_kernel[grid](k, o, counter, 8, 13, d=16, block=8, asks=asks, halves=halves)
    found = schedule(meter.finish(outputs={"o": o}))
    return {name: found[:, n].astype(int).tolist() for n, name in enumerate(COLUMNS)}


def test_a_visit_has_its_program_its_place_its_rows_and_the_bytes_of_k():
    seen = visits((3,))
    assert seen["program"] == [0, 0, 0, 1, 1, 1, 2, 2] and set(seen["launched"]) == {3}
    assert [tuple(x) for x in zip(seen["batch"], seen["head"], seen["row"], strict=True)] == [
        (n // 4, n // 2 % 2, n % 2 * 8) for n in (0, 3, 6, 1, 4, 7, 2, 5)
    ]
    assert seen["rows"] == [5 if row else 8 for row in seen["row"]]
    assert seen["bytes"] == [rows * 16 * 4 for rows in seen["rows"]] and not any(seen["asked"])


def test_programs_count_in_launch_order_x_fastest():
    seen = visits((2, 2))
    first = {}
    for program, *place in zip(*(seen[name] for name in ("program", "batch", "head", "row")), strict=True):
        first.setdefault(program, tuple(place))
    assert first == {n: (0, n // 2, n % 2 * 8) for n in range(4)}


def test_columns_stored_apart_are_one_visit():
    assert visits((3,), halves=True) == visits((3,))


def test_a_number_from_a_counter_is_told():
    seen = visits((3,), asks=True)
    assert seen["asked"] == [1] * 8 and sorted(seen["bytes"]) == sorted(visits((3,))["bytes"])


def test_work_that_is_never_stored_is_a_visit_of_nowhere():
    k, o = torch.randn(1, 1, 8, 16), torch.empty(1, 1, 8, 16)

    @triton.jit
    def reads_kernel(k_ptr, o_ptr, d: tl.constexpr, block: tl.constexpr):
        at = tl.arange(0, block)[:, None] * d + tl.arange(0, d)[None, :]
        x = tl.load(k_ptr + at)
        tl.store(o_ptr + at, x, mask=at < 0)

    with Meter(names={"k": k}) as meter:
        reads_kernel[(1,)](k, o, d=16, block=8)
    (visit,) = schedule(meter.finish(outputs={"o": o}))
    assert visit[COLUMNS.index("row")] == -1 and visit[COLUMNS.index("bytes")] == 8 * 16 * 4


@pytest.mark.parametrize(
    ("reads", "visits"),
    [
        ("q", 3),  # all over again, of a tile that sees no key
        ("o", 1),  # a correction of what was stored, such as a division that comes late
        ("nothing", 1),  # zeros before the result
    ],
)
def test_the_same_columns_stored_again_are_another_visit_if_work_lies_between(reads, visits):
    q, o = torch.randn(1, 1, 8, 16), torch.zeros(1, 1, 8, 16)

    @triton.jit
    def again_kernel(read_ptr, o_ptr, d: tl.constexpr, block: tl.constexpr, times: tl.constexpr, reads: tl.constexpr):
        cols = tl.arange(0, d)[None, :]
        at = tl.arange(0, block)[:, None] * d + cols
        x = tl.zeros((block, d), tl.float32)
        for _ in range(times):
            if reads:
                x = tl.load(read_ptr + at)
            tl.store(o_ptr + at, x, mask=cols < d // 2)
            tl.store(o_ptr + at, x, mask=cols >= d // 2)

    with Meter(names={"q": q}) as meter:
        again_kernel[(1,)](o if reads == "o" else q, o, d=16, block=8, times=3, reads=reads != "nothing")
    assert len(schedule(meter.finish(outputs={"o": o}))) == visits


@pytest.mark.parametrize(
    ("order", "reads", "visits"),
    [
        ("row-halves", False, 2),
        ("quarters, columns outside", False, 2),
        ("quarters, columns outside", True, 2),  # V of the columns, say, before they are stored
        ("every second row", False, 1),
    ],
)
def test_what_is_stored_once_in_any_order_is_no_tile_again(order, reads, visits):
    q, o = torch.randn(1, 1, 8, 16), torch.zeros(1, 1, 8, 16)

    @triton.jit
    def parts_kernel(q_ptr, o_ptr, row: tl.constexpr, step: tl.constexpr, halves: tl.constexpr, reads: tl.constexpr):
        cols = tl.arange(0, 16 // halves)[None, :]
        for right in tl.static_range(halves):
            for down in tl.static_range(2):
                at = (row * down + step * tl.arange(0, 4)[:, None]) * 16 + right * (16 // halves) + cols
                x = tl.zeros((4, 16 // halves), tl.float32)
                if reads:
                    x = tl.load(q_ptr + at)
                tl.store(o_ptr + at, x)

    row, step = (1, 2) if order == "every second row" else (4, 1)
    with Meter(names={"q": q}) as meter:
        parts_kernel[(1,)](q, o, row=row, step=step, halves=1 + order.startswith("quarters"), reads=reads)
    found = schedule(meter.finish(outputs={"o": o}))
    assert len(found) == visits and found[:, COLUMNS.index("row")].tolist() == [0.0, 4.0][:visits]


def test_without_kernels_there_is_nothing():
    with Meter() as meter:
        pass
    assert schedule(meter.finish()).shape == (0, len(COLUMNS)) and np.float64 == schedule(meter.record).dtype
