"""Where the compiler puts the wait: how the listing is read, and that the record is what this compiler does."""

import json

import pytest
import triton

from benchmarks import overlap_order

SASS = """
  /*0010*/  HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4] ;
  /*0020*/  HGMMA.64x128x16.F32.BF16 R88, R24, gdesc[UR8] ;
  /*0030*/  WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
  /*0040*/  MUFU.EX2 R7, R7 ;
  /*0050*/  WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
  /*0060*/  MUFU.EX2 R8, R8 ;
  /*0070*/  MUFU.EX2 R9, R9 ;
  /*0080*/  DEPBAR.LE SB0, 0x0 ;
  /*0090*/  HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4] ;
  /*00a0*/  MUFU.EX2 R9, R9 ;
"""
PTX = """
wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {};
wgmma.wait_group.sync.aligned 1;
ex2.approx.ftz.f32 %r1, %r2;
ex2.approx.ftz.f32 %r1, %r2;
wgmma.wait_group.sync.aligned 0;
"""


def test_the_listing_is_read_in_its_order():
    found = overlap_order.events(SASS.splitlines(), 1)
    assert found == ["product", "product", "wait 1", "exp", "wait 0", "exp", "exp", "product", "exp"]
    assert overlap_order.order(found) == {"before": [1], "after": [2]}
    assert overlap_order.order(overlap_order.events(PTX.splitlines(), 0)) == {"before": [2], "after": [0]}


def test_the_record_says_that_source_order_is_not_machine_order():
    record = json.loads(overlap_order.RESULT.read_text())
    assert record["ptx"] == {"before": [66, 66], "after": [0, 0]}
    assert all(before < after for before, after in zip(record["sass"]["before"], record["sass"]["after"], strict=True))


@pytest.mark.slow
def test_the_record_is_what_this_compiler_does():
    record = json.loads(overlap_order.RESULT.read_text())
    if record["triton"] != triton.__version__:
        pytest.skip(f"the record is of triton {record['triton']}")
    ptx, sass = overlap_order.compiled(overlap_order.launch())
    assert overlap_order.order(overlap_order.events(ptx.splitlines(), 0)) == record["ptx"]
    assert overlap_order.order(overlap_order.events(sass.splitlines(), 1)) == record["sass"]
