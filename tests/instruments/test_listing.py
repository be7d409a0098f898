"""What PTX is made of: matrix FLOP, load widths, and which lines are a loop."""

import pytest

from flashkit.instruments.listing import read

LOOP = """
.visible .entry kernel(
$L__func_begin0:
	ld.global.v4.b32 	{%r1, %r2, %r3, %r4}, [%rd1];
	@%p1 bra 	$L__BB0_4;
$L__BB0_1:
	mov.b32 	%r9, 0;
$L__BB0_2:                              // =>This Inner Loop Header: Depth=2
	wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%r1}, %rd2, %rd3, 1, 1, 1, 0, 0;
	@%p2 cp.async.cg.shared.global [ %r50 + 0 ], [ %rd12 + 0 ], 0x10, %r51;
	ex2.approx.f32 	%f1, %f2;
	shfl.sync.bfly.b32 	%r352, %r349, 2, 31, -1;
	st.shared.v4.b32 	[%r1], {%r1, %r2, %r3, %r4};
	max.f32 	%f3, %f4, %f5;
	bar.sync 	0;
	@%p3 bra 	$L__BB0_2;
	@%p4 bra 	$L__BB0_1;
$L__BB0_4:
	ret;
"""


def test_the_innermost_loop_and_what_it_does():
    listing = read(LOOP)
    assert len(listing.loops) == 1
    loop = listing.main
    assert loop.issued == 7 and loop.special == 1 and loop.shuffles == 1 and loop.barriers == 1
    assert loop.shared == 32 * 16 and loop.loads == {16: 1}
    assert loop.kinds["wgmma"] == loop.kinds["cp.async"] == 1 and loop.kinds["TMA"] == 0


def test_a_warp_does_a_quarter_of_a_warpgroups_product():
    assert read(LOOP).main.matrix == 2 * 64 * 128 * 16 / 4


def test_half_rate_instructions_cost_two_cycles_and_exp2_its_two_products():
    # wgmma 1, cp.async 1, ex2 5, shfl 4, store 1, max 2, bar 1
    assert read(LOOP).main.cycles == 15


def test_the_whole_kernel_counts_what_is_outside_the_loop_too():
    assert read(LOOP).whole.issued == 8 and read(LOOP).whole.loads == {16: 2}


@pytest.mark.parametrize(
    "line, width",
    [
        ("ld.global.b32 %r1, [%rd1];", 4),
        ("ld.global.v2.f32 {%f1, %f2}, [%rd1];", 8),
        ("@%p1 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [ %rd1 + 0 ];", 16),
        ("ld.global.L1::evict_last.v4.b32 {%r1}, [%rd1];", 16),
        ("ld.global.b16 %rs1, [%rd1];", 2),
        ("cp.async.ca.shared.global [%r1], [%rd1], 8;", 8),
    ],
)
def test_load_widths(line, width):
    assert read(line).whole.loads == {width: 1}


@pytest.mark.parametrize("line", ["st.global.b32 [%rd1], %r1;", "ld.param.b64 %rd1, [kernel_param_0];"])
def test_what_is_no_load_from_global_memory(line):
    assert read(line).whole.loads == {}


def test_mma_sync_tcgen05_and_tma_are_told_apart():
    kinds = read(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;\n"
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], [%r2];"
    ).whole.kinds
    assert kinds == {"mma.sync": 1, "wgmma": 0, "tcgen05": 1, "cp.async": 0, "TMA": 1}
    assert read("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1};").whole.matrix == 4096


TCGEN05 = """.reqntid 256
mov.b32 %r162, 135266320;
tcgen05.mma.cta_group::1.kind::f16 [ %r714 + 0 ], %rd73, %rd74, %r162, %p31;
tcgen05.mma.cta_group::1.kind::f16 [ %r1634 + 0 ], [ %r708 + 8 ], %rd101, %r162, %p44;
tcgen05.mma.cta_group::1.kind::f16 [ %r1634 + 0 ], [ %r708 + 8 ], %rd101, %r163, %p44;
"""


def test_a_blocks_tcgen05_products_have_the_shape_of_their_descriptor():
    """128 x 64 x 16, started once for the block of 8 warps; a descriptor that is computed stays unknown."""
    assert read(TCGEN05).whole.matrix == 2 * (2 * 128 * 64 * 16) / 8


TWICE_BACK = """$L_top:
    add.f32 %f1, %f1, %f2;
    @%p1 bra $L_top;
    add.f32 %f1, %f1, %f2;
    bra.uni $L_top;
"""


def test_two_branches_back_to_one_label_are_one_loop():
    assert [loop.issued for loop in read(TWICE_BACK).loops] == [2]


DECOY = """.version 8.0
.visible .func (.param .b32 func_retval0) helper(
)
{
    cp.async.cg.shared.global [%r1], [%rd1], 16;
}
.visible .entry own(
    .param .u64 x
)
{
    /*
    wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1};
    */
    call (retval0), helper, ();
}
.visible .entry decoy()
{
    wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1};
}
"""


def test_comments_and_kernels_beside_the_one_that_is_asked_for_count_for_nothing():
    own, all_of_them, missing = (read(DECOY, kernel=name).whole.kinds for name in ("own", "", "none"))
    assert (own["wgmma"], own["cp.async"]) == (0, 1)
    assert (all_of_them["wgmma"], all_of_them["cp.async"]) == (1, 1) and missing == all_of_them
