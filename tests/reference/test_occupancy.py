"""reference.occupancy: NVIDIA's published examples and limits, and what binds."""

import pytest

from reference.occupancy import KIB, LIMITS, occupancy


def test_best_practices_guide_37_registers():
    """CUDA C++ Best Practices Guide, "Calculating Occupancy" (64 warps, 64 K registers an SM, as on sm_80)."""
    small, large = occupancy(80, 4, 37, 0), occupancy(80, 10, 37, 0)
    assert (small.blocks, small.share) == (12, 0.75)
    assert (large.blocks, large.share) == (4, 0.625)  # the guide rounds it to 63 %
    assert small.binds == large.binds == ("registers",)


def test_best_practices_guide_32_registers_still_fill_the_sm():
    assert occupancy(80, 8, 32, 0).share == 1.0 and occupancy(80, 8, 33, 0).share < 1.0


@pytest.mark.parametrize("arch, most", [(80, 163), (86, 99), (89, 99), (90, 227), (100, 227), (120, 99)])
def test_the_most_shared_memory_of_one_block(arch, most):
    """CUDA C++ Programming Guide: the limit of a block is 1 KiB below the SM's."""
    assert occupancy(arch, 4, 32, most * KIB).blocks == 1
    too_much = occupancy(arch, 4, 32, most * KIB + 1)
    assert too_much.blocks == 0 and too_much.binds == ("shared memory",)
    assert LIMITS[arch].shared - LIMITS[arch].block_shared == KIB


@pytest.mark.parametrize("arch, threads", [(75, 1024), (80, 2048), (86, 1536), (89, 1536), (90, 2048), (120, 1536)])
def test_threads_an_sm(arch, threads):
    full = occupancy(arch, 8, 16, 0)
    assert full.warps * 32 == threads and full.share == 1.0 and "warps" in full.binds


def test_each_resource_binds_where_it_is_short():
    assert occupancy(90, 1, 16, 0).binds == ("blocks",)
    assert occupancy(90, 32, 16, 0).binds == ("warps",)
    assert occupancy(90, 4, 255, 0).binds == ("registers",) and occupancy(90, 4, 255, 0).blocks == 2
    assert occupancy(90, 4, 64, 100 * KIB).binds == ("shared memory",)
    assert occupancy(90, 4, 168, 75 * KIB).binds == ("registers", "shared memory")


def test_the_register_limit_of_a_block_is_not_forgotten():
    assert occupancy(90, 9, 200, 0).blocks == 0  # 9 warps are checked as 12: 12 * 6,400 > 65,536
    assert occupancy(90, 8, 255, 0).blocks == 1 and occupancy(90, 8, 256, 0).blocks == 0


def test_the_systems_kibibyte_costs_a_block():
    assert occupancy(80, 4, 32, 41 * KIB).blocks == 3  # 4 * 41 = 164 KiB would fit without it
    assert occupancy(80, 4, 32, 40 * KIB).blocks == 4


@pytest.mark.parametrize("arguments", [(70, 4, 32, 0), (90, 0, 32, 0), (90, 4, -1, 0), (90, 4, 32, -1)])
def test_what_no_kernel_can_have_is_refused(arguments):
    with pytest.raises(ValueError):
        occupancy(*arguments)
