"""reference.traffic: against tiles counted one by one, the syllabus's numbers, paper tables, and the meter."""

import itertools

import pytest

import flashkit  # noqa: F401  comes before triton
from reference.traffic import (
    ALGORITHMS,
    GIB,
    MIB,
    Shape,
    by_tensor,
    fa1,
    fa1_backward,
    fa1_blocks,
    fa2,
    fused_softmax,
    matmul_flops,
    naive,
    naive_backward,
    total,
)

# ---- tiles counted one by one ---------------------------------------------------------------------------

SHAPES = [
    Shape(5, 5, 2, 2, 4, 4),
    Shape(64, 64, 16, 16, 16, 32),
    Shape(37, 53, 8, 24, 16, 32, itemsize=4),
    Shape(1, 51, 16, 16, 16, 16),
    Shape(48, 48, 16, 16, 16, 16, causal=True),
    Shape(40, 70, 16, 8, 32, 16, causal=True, offset=30, B=2, H_q=4, H_kv=2),
    Shape(45, 33, 16, 16, 16, 32, causal=True, offset=-12),
    Shape(33, 90, 16, 16, 32, 16, causal=True, offset=5, H_q=6, H_kv=2, statistics=8),
]
each_shape = pytest.mark.parametrize("s", SHAPES, ids=lambda s: f"{s.N_q}x{s.N_k}{'c' * s.causal}")


def tiles(N, block):
    """The rows of each tile that exist."""
    return [range(start, min(N, start + block)) for start in range(0, N, block)]


def visible(s, i, keys):
    """May any row of query tile i, padding included, see a key of the tile?"""
    rows = range(i * s.block_q, (i + 1) * s.block_q)
    return not s.causal or any(key <= row + s.offset for row in rows for key in keys)


def visits(s):
    """(query tile's rows, key tile's keys) of every tile that a walk touches."""
    for (i, rows), keys in itertools.product(enumerate(tiles(s.N_q, s.block_q)), tiles(s.N_k, s.block_k)):
        if visible(s, i, keys):
            yield rows, keys


@each_shape
def test_fa2_is_the_sum_over_the_tiles_it_visits(s):
    keys = sum(len(keys) for _, keys in visits(s)) * s.heads
    assert by_tensor(fa2(s)) == {
        "q": s.heads * s.N_q * s.d * s.itemsize,
        "k": keys * s.d * s.itemsize,
        "v": keys * s.d_v * s.itemsize,
        "o": s.heads * s.N_q * s.d_v * s.itemsize,
        "lse": s.heads * s.N_q * s.statistics,
    }


@each_shape
def test_fa1_is_the_sum_over_the_tiles_it_visits(s):
    rows = sum(len(rows) for rows, _ in visits(s)) * s.heads
    assert by_tensor(fa1(s)) == {
        "k": s.heads * s.N_k * s.d * s.itemsize,
        "v": s.heads * s.N_k * s.d_v * s.itemsize,
        "q": rows * s.d * s.itemsize,
        "o": 2 * rows * s.d_v * s.itemsize,
        "l": 2 * rows * s.statistics,
        "m": 2 * rows * s.statistics,
    }
    backward = by_tensor(fa1_backward(s))
    assert backward["dq"] == 2 * backward["q"] == 2 * rows * s.d * s.itemsize
    assert backward["dk"] == backward["k"] and backward["do"] == backward["o"] == rows * s.d_v * s.itemsize


@each_shape
def test_naive_is_the_sum_over_all_tiles(s):
    counted = dict.fromkeys("qkspvo", 0)
    for rows, keys in itertools.product(tiles(s.N_q, s.block_q), tiles(s.N_k, s.block_k)):
        counted["q"] += len(rows) * s.d
        counted["k"] += len(keys) * s.d
        counted["s"] += 2 * len(rows) * len(keys)
        counted["p"] += 2 * len(rows) * len(keys)
        counted["v"] += len(keys) * s.d_v
    counted["o"] = s.N_q * s.d_v
    assert by_tensor(naive(s)) == {name: s.heads * n * s.itemsize for name, n in counted.items()}
    fused = by_tensor(fused_softmax(s))
    assert "s" not in fused and fused["p"] == s.heads * counted["p"] * s.itemsize
    assert fused["q"] == s.heads * s.N_q * s.d * s.itemsize and fused["k"] == s.heads * s.N_k * s.d * s.itemsize * len(
        tiles(s.N_q, s.block_q)
    )


def test_a_mask_that_hides_nothing_changes_no_byte():
    for ledger in ALGORITHMS.values():
        plain, masked = Shape(40, 70, 16, 8, 32, 16), Shape(40, 70, 16, 8, 32, 16, causal=True, offset=69)
        assert by_tensor(ledger(plain)) == by_tensor(ledger(masked))


@pytest.mark.parametrize("bad", [{"N_q": 0}, {"block_k": 0}, {"itemsize": 0}, {"H_q": 3, "H_kv": 2}])
def test_a_shape_that_cannot_be_is_refused_by_name(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Shape(**{**dict(N_q=4, N_k=4, d=2, d_v=2, block_q=4, block_k=4), **bad})


# ---- the syllabus's numbers -----------------------------------------------------------------------------


def scores_and_weights(N):
    return [entry for entry in naive(Shape(N, N, 64, 64, 128, 128)) if entry.tensor in "sp"]


def test_one_score_matrix_is_512_mib_and_the_round_trips_are_2_gib():
    entries = scores_and_weights(16384)
    assert [(e.tensor, e.read / MIB, e.written / MIB) for e in entries] == [
        ("s", 0, 512), ("s", 512, 0), ("p", 0, 512), ("p", 512, 0),
    ]  # fmt: skip
    assert entries[0].written == 536_870_912
    by_step = {step: sum(e.read + e.written for e in entries if e.step == step) for step in {e.step for e in entries}}
    assert by_step == {"S = Q K^T": 512 * MIB, "P = softmax(S)": 1024 * MIB, "O = P V": 512 * MIB}
    assert total(entries) == 2048 * MIB == 2 * GIB


def test_doubling_the_length_makes_it_four_times():
    assert total(scores_and_weights(32768)) == 4 * total(scores_and_weights(16384))


def gpt2_medium(M_kib=None):
    """The workload of FlashAttention's figure 2, left: tiles from M, or every operand read once."""
    block_q, block_k = fa1_blocks(M_kib * 1024 // 2, 64) if M_kib else (1024, 1024)
    return Shape(1024, 1024, 64, 64, block_q, block_k, B=64, H_q=16, H_kv=16)


def test_figure_2_flop_are_825_and_962_giga():
    standard, recomputed = (matmul_flops(gpt2_medium(), products) / 1e9 for products in (6, 7))
    assert round(standard) == 825 and round(recomputed) == 962
    assert recomputed / standard == pytest.approx(7 / 6) and 75.2 / 66.6 == pytest.approx(1.13, abs=0.005)
    assert standard / 66.6 == pytest.approx(12.4, abs=0.05)  # the printed row is another unit, or another count


def test_figure_2_standard_attention_is_11_passes_and_25_gigabytes():
    s = gpt2_medium()
    entries = naive(s) + naive_backward(s)
    one_pass = s.heads * s.N_q * s.N_k * s.itemsize
    squares = [e for e in entries if e.tensor in ("s", "p", "dp", "ds")]
    assert total(squares) == 11 * one_pass
    assert total(entries) / 1e9 == pytest.approx(25.2, abs=0.05)
    assert 40.3e9 / one_pass == pytest.approx(18.8, abs=0.05)


@pytest.mark.parametrize(
    ("M_kib", "tiles", "gigabytes"), [(96, (64, 192), 7.4), (128, (64, 256), 5.2), (192, (64, 384), 4.1)]
)
def test_figure_2_flash_attention_by_on_chip_memory(M_kib, tiles, gigabytes):
    s = gpt2_medium(M_kib)
    assert (s.block_q, s.block_k) == tiles
    assert total(fa1(s) + fa1_backward(s)) / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_figure_2_ratio_is_between_3_and_6_where_9_is_printed():
    standard = total(naive(gpt2_medium()) + naive_backward(gpt2_medium()))
    ratios = [standard / total(fa1(s) + fa1_backward(s)) for s in map(gpt2_medium, (96, 192))]
    assert [round(ratio, 1) for ratio in ratios] == [3.4, 6.2]
    assert 40.3 / 4.4 == pytest.approx(9.2, abs=0.05)


def test_on_chip_memory_in_elements():
    assert [kib * 1024 // 2 for kib in (64, 164)] == [32_768, 83_968]
    assert fa1_blocks(49_152, 64) == (64, 192) and fa1_blocks(49_152, 128) == (96, 96)


# ---- IO complexity --------------------------------------------------------------------------------------

N, D = 4096, 64
MEMORIES = (8_192, 16_384, 32_768, 65_536, 131_072)  # elements; d <= M <= N d


def test_fa1_moves_n_squared_d_squared_over_m():
    constants = []
    for M in MEMORIES:
        block_q, block_k = fa1_blocks(M, D)
        constants.append(total(fa1(Shape(N, N, D, D, block_q, block_k))) / 2 / (N * N * D * D / M))
    assert max(constants) / min(constants) < 1.2 and 12 < min(constants)  # 3 passes of N d for each of 4 N d / M tiles


def test_fa2_moves_n_d_plus_n_squared_d_over_block_q():
    for block_q in (16, 32, 64, 128, 256):
        moved = total(fa2(Shape(N, N, D, D, block_q, 64))) / 2
        assert moved == pytest.approx(2 * N * D + 2 * N * N * D / block_q, rel=0.02)


def test_naive_moves_n_squared_whatever_the_memory():
    s, twice = (Shape(n, n, D, D, n, n) for n in (N, 2 * N))
    assert total(naive(s)) == 2 * (4 * N * N + 4 * N * D)
    assert total(naive(twice)) / total(naive(s)) == pytest.approx(4, rel=0.05)
