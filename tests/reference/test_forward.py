"""reference.forward: dense, both tiled loop orders, PyTorch's attention, the trace, and low-precision arithmetic."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from reference import forward
from reference.forward import STEPS, Problem, Trace, dense, multi_head, tiled, tiled_fa1
from reference.online_softmax import online_softmax
from reference.shapes import FLOAT16, FLOAT32, visible_keys

TILED = [tiled, tiled_fa1]
SHAPES = [(1, 1), (1, 7), (7, 1), (5, 5), (13, 11), (8, 8), (17, 31)]
TILES = [(1, 1), (3, 4), (4, 3), (16, 2), (2, 16), (64, 64)]


def head(seed, N_q, N_k, d=4, d_v=4):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((N_q, d)), rng.standard_normal((N_k, d)), rng.standard_normal((N_k, d_v))


def some_mask(seed, N_q, N_k):
    mask = np.random.default_rng(seed).random((N_q, N_k)) < 0.6
    mask[N_q // 2] = False  # a query that sees nothing
    return mask


def assert_same(actual, expected, atol=1e-12):
    for name, a, e in zip(("O", "lse"), actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=0, atol=atol, err_msg=name)  # equal infinities pass, NaN does not hide


def test_dense_row_by_row_is_the_online_softmax():
    Q, K, V = head(0, 5, 7, d=3, d_v=2)
    O, lse = dense(Problem(Q, K, V))
    S = Q @ K.T / np.sqrt(3)
    np.testing.assert_allclose(O, online_softmax(S, V, block=2), atol=1e-14)
    np.testing.assert_allclose(lse, np.log(np.exp(S).sum(axis=1)), atol=1e-14)


@pytest.mark.parametrize("run", TILED)
@pytest.mark.parametrize(("block_q", "block_k"), TILES)
@pytest.mark.parametrize(("N_q", "N_k"), SHAPES)
def test_tiled_is_dense(run, N_q, N_k, block_q, block_k):
    Q, K, V = head(N_q + N_k, N_q, N_k, d=3, d_v=5)
    for options in ({}, {"scale": 3.0}, {"mask": some_mask(1, N_q, N_k)}):
        p = Problem(Q, K, V, block_q=block_q, block_k=block_k, **options)
        assert_same(run(p), dense(p))


@pytest.mark.parametrize("run", TILED)
@pytest.mark.parametrize(("block_q", "block_k"), TILES)
@pytest.mark.parametrize(("N_q", "N_k"), SHAPES)
def test_tiled_is_dense_when_causal_with_any_offset(run, N_q, N_k, block_q, block_k):
    Q, K, V = head(N_q + N_k, N_q, N_k)
    for offset in {0, N_k - N_q, -1, -5, 2, N_k + N_q, -N_k - N_q}:
        p = Problem(Q, K, V, causal=True, offset=offset, block_q=block_q, block_k=block_k)
        assert_same(run(p), dense(p))
        assert_same(run(replace(p, mask=some_mask(2, N_q, N_k))), dense(replace(p, mask=some_mask(2, N_q, N_k))))


def test_visible_keys_of_both_causal_alignments():
    assert visible_keys(2, 4, causal=True, offset=0).astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]
    assert visible_keys(2, 4, causal=True, offset=2).astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert visible_keys(1, 4, causal=True, offset=3).all()  # decode: the one query sees every key
    assert visible_keys(3, 1, causal=True, offset=-2)[:, 0].tolist() == [False, False, True]


@pytest.mark.parametrize("run", [dense, *TILED])
def test_empty_rows_have_output_0_and_lse_minus_inf(run):
    Q, K, V = head(3, 6, 5)
    with np.errstate(all="raise", divide="ignore"):
        O, lse = run(Problem(Q, K, V, causal=True, offset=-2, block_q=4, block_k=2))
    assert (O[:2] == 0).all() and np.isneginf(lse[:2]).all()
    assert (O[2:] != 0).all() and np.isfinite(lse[2:]).all()


@pytest.mark.parametrize("run", [dense, *TILED])
@pytest.mark.parametrize(("N_q", "N_k"), [(0, 3), (3, 0), (0, 0)])
def test_no_queries_or_no_keys(run, N_q, N_k):
    O, lse = run(Problem(*head(0, N_q, N_k, d_v=2)))
    assert O.shape == (N_q, 2) and (O == 0).all() and lse.shape == (N_q,) and np.isneginf(lse).all()


@pytest.mark.parametrize("run", TILED)
def test_huge_scores(run):
    Q, K, V = head(4, 9, 9)
    p = Problem(100 * Q, 100 * K, V, block_q=4, block_k=2)
    assert_same(run(p), dense(p), atol=1e-10)  # lse is about 1e4
    assert np.isfinite(run(p)[1]).all()


@pytest.mark.parametrize("run", [dense, *TILED])
@pytest.mark.parametrize(("H_q", "H_kv"), [(2, 2), (4, 2), (6, 1)])
@pytest.mark.parametrize("kind", ["full", "causal", "mask"])
def test_multi_head_is_torch_attention(run, H_q, H_kv, kind):
    rng = np.random.default_rng(H_q)
    Q, K, V = (rng.standard_normal(s) for s in ((2, H_q, 9, 4), (2, H_kv, 7, 4), (2, H_kv, 7, 6)))
    mask = rng.random((9, 7)) < 0.6
    mask[:, 2] = True
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(torch.tensor(x) for x in (Q, K, V)),
        attn_mask=torch.tensor(mask) if kind == "mask" else None,
        is_causal=kind == "causal",  # top-left, as offset=0
        enable_gqa=True,
    )
    options = {"full": {}, "causal": {"causal": True}, "mask": {"mask": mask}}[kind]
    O, lse = multi_head(Q, K, V, run, block_q=4, block_k=3, **options)
    np.testing.assert_allclose(O, expected.numpy(), rtol=0, atol=1e-12)
    assert lse.shape == (2, H_q, 9)


def test_lse_is_torch_logsumexp_of_the_scaled_scores():
    Q, K, V = head(5, 6, 8)
    S = torch.tensor(Q) @ torch.tensor(K).T / 2
    for run in (dense, *TILED):
        np.testing.assert_allclose(run(Problem(Q, K, V))[1], torch.logsumexp(S, dim=1).numpy(), atol=1e-13)


@pytest.mark.parametrize("run", TILED)
@pytest.mark.parametrize(("arithmetic", "atol"), [(FLOAT32, 2e-6), (FLOAT16, 2e-3)])
def test_low_precision_is_close_and_low(run, arithmetic, atol):
    p = Problem(*head(6, 20, 33, d=8), block_q=8, block_k=8, arithmetic=arithmetic)
    O, lse = run(p)
    assert_same((O, lse), dense(p), atol)
    assert O.dtype == lse.dtype == np.float32
    assert abs(O - dense(p)[0]).max() > 1e-9


def test_length_5_tile_4_the_tail_tile_has_only_key_4():
    trace = Trace()
    tiled(Problem(*head(7, 5, 5), block_q=4, block_k=4), trace=trace)
    assert [(e.i, e.j) for e in trace.events] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    tail = trace.events[-1]
    assert tail.rows.tolist() == [4] and tail.keys.tolist() == [4, 5, 6, 7]
    assert tail.visible.tolist() == [[True, False, False, False]]
    assert (tail.P[0, 1:] == 0).all() and tail.P[0, 0] > 0 and np.isneginf(tail.S[0, 1:]).all()


def test_fa1_order_walks_key_tiles_outside():
    p = Problem(*head(8, 6, 6), block_q=3, block_k=2)
    fa1, fa2 = Trace(), Trace()
    tiled_fa1(p, trace=fa1)
    tiled(p, trace=fa2)
    assert [(e.j, e.i) for e in fa1.events] == [(j, i) for j in range(3) for i in range(2)]
    assert [(e.i, e.j) for e in fa2.events] == [(i, j) for i in range(2) for j in range(3)]


@pytest.mark.parametrize("run", TILED)
@pytest.mark.parametrize("offset", [0, 3, -3, -20])
def test_causal_visits_just_the_tiles_that_hold_a_visible_key(run, offset):
    p = Problem(*head(9, 12, 12), causal=True, offset=offset, block_q=4, block_k=3)
    trace = Trace()
    run(p, trace=trace)
    holds = {(i, j) for i in range(3) for j in range(4) if p.visible[4 * i : 4 * i + 4, 3 * j : 3 * j + 3].any()}
    assert {(e.i, e.j) for e in trace.events} == holds and len(trace.events) == len(holds)


def test_the_trace_carries_the_state_of_each_row():
    Q, K, V = head(10, 5, 7)
    p, trace = Problem(Q, K, V, block_q=2, block_k=3), Trace()
    O, lse = tiled(p, trace=trace)
    S = Q @ K.T / 2
    for e in trace.events:
        seen = S[e.rows, : 3 * (e.j + 1)]
        np.testing.assert_allclose(e.m, seen.max(axis=1))
        np.testing.assert_allclose(e.l, np.exp(seen - seen.max(axis=1, keepdims=True)).sum(axis=1))
    np.testing.assert_allclose(e.acc / e.l[:, None], O[e.rows])
    np.testing.assert_allclose(e.m + np.log(e.l), lse[e.rows])


@pytest.mark.parametrize("run", TILED)
@pytest.mark.parametrize("step", [field.name for field in fields(STEPS)])
def test_each_step_can_be_replaced(run, step):
    calls = []

    def counted(*arguments):
        calls.append(step)
        return getattr(forward, step)(*arguments)

    p = Problem(*head(11, 5, 5), block_q=2, block_k=2)
    assert_same(run(p, replace(STEPS, **{step: counted})), dense(p))
    assert calls


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Q": np.zeros(4)}, "Q must be one head, a matrix with 2 dimensions, but has shape (4,)"),
        ({"K": np.zeros((5, 3))}, "same head dimension, but have d=4 and d=3"),
        ({"V": np.zeros((6, 4))}, "same number of keys, but have 5 and 6"),
        ({"mask": np.ones((5, 5))}, "mask must be boolean with shape (5, 5), but is float64 (5, 5)"),
        ({"mask": [[True]]}, "mask must be boolean with shape (5, 5), but is bool (1, 1)"),
        ({"block_k": 0}, "block_q and block_k must be at least 1, but are 16 and 0"),
    ],
)
def test_impossible_problems_are_refused_in_one_sentence(change, message):
    Q, K, V = head(12, 5, 5)
    with pytest.raises(ValueError) as error:
        Problem(**({"Q": Q, "K": K, "V": V} | change))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_heads_that_cannot_be_grouped_are_refused():
    Q, K = np.zeros((1, 3, 2, 2)), np.zeros((1, 2, 2, 2))
    with pytest.raises(ValueError, match="query heads must be a multiple of K/V heads, but there are 3 and 2"):
        multi_head(Q, K, K)
