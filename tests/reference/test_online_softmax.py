"""reference.online_softmax: the syllabus's numbers, its trace, and merging of partial states."""

from functools import reduce

import numpy as np
import pytest

from reference.online_softmax import Trace, finish, fold, init, merge, online_softmax

SCORES, VALUES = np.array([1.0, 2.0, 3.0, 0.0]), np.array([2.0, 8.0, 4.0, 10.0])


def softmax(S):
    P = np.exp(S - S.max(axis=-1, keepdims=True))
    return P / P.sum(axis=-1, keepdims=True)


def assert_same_state(a, b):
    for name in ("m", "l", "acc"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-14, atol=1e-14)


def test_worked_example_block_by_block():
    trace = Trace()
    out = online_softmax(SCORES, VALUES, block=2, trace=trace)
    first, second = trace.blocks
    assert (first.m, first.alpha) == (2, 0)  # the first block meets an empty state
    assert first.l == pytest.approx(1 + np.exp(-1), abs=1e-15)
    assert second.m == 3 and second.alpha == pytest.approx(np.exp(-1), abs=1e-15)
    assert second.l == pytest.approx(1.5530018, abs=5e-8)
    assert out == pytest.approx(4.9655943, abs=5e-8)
    assert second.acc.item() / second.l == pytest.approx(out)
    assert [b.start for b in trace.blocks] == [0, 2] and second.scores.tolist() == [3, 0]


def test_separately_normalised_blocks_cannot_be_averaged():
    scores, values = np.array([0.0, np.log(3)]), np.array([10.0, 2.0])
    apart = [online_softmax(scores[i : i + 1], values[i : i + 1], block=1) for i in range(2)]
    assert np.mean(apart) == 6
    assert online_softmax(scores, values, block=1) == pytest.approx(4, abs=1e-14)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 11, 100])
@pytest.mark.parametrize("N", [1, 2, 7, 11])
def test_any_block_size_gives_the_dense_softmax(N, block):
    rng = np.random.default_rng(N)
    S, V = 10 * rng.standard_normal((3, N)), rng.standard_normal((N, 2))
    np.testing.assert_allclose(online_softmax(S, block=block), softmax(S), atol=1e-14)
    np.testing.assert_allclose(online_softmax(S, V, block=block), softmax(S) @ V, atol=1e-14)
    np.testing.assert_allclose(online_softmax(S[0], V[:, 0], block=block), softmax(S[0]) @ V[:, 0], atol=1e-14)


def test_one_row_is_a_row_of_many():
    S, V = np.random.default_rng(0).standard_normal((2, 5, 5))
    rows, row = Trace(), Trace()
    online_softmax(S, V, block=2, trace=rows)
    online_softmax(S[1], V, block=2, trace=row)
    for many, one in zip(rows.blocks, row.blocks, strict=True):
        for name in ("scores", "alpha", "m", "l", "acc"):
            np.testing.assert_allclose(getattr(many, name)[1], getattr(one, name), rtol=1e-14)


def test_huge_scores_neither_overflow_nor_vanish():
    S = np.array([-1e4, 1e4, 1e4, -1e300, 900.0])
    np.testing.assert_allclose(online_softmax(S, block=1), [0, 0.5, 0.5, 0, 0])


@pytest.mark.parametrize("hidden", [[0, 1], [2, 3], [0, 1, 2, 3, 4], [1]])
def test_hidden_scores_change_nothing(hidden):
    """A block hidden at the start, in the middle or everywhere: no NaN, and the other keys are as if alone."""
    S, V = np.random.default_rng(1).standard_normal((2, 5))
    S[hidden] = -np.inf
    seen = np.delete(np.arange(5), hidden)
    with np.errstate(all="raise"):
        out, P = online_softmax(S, V, block=2), online_softmax(S, block=2)
    assert out == pytest.approx(online_softmax(S[seen], V[seen], block=2) if len(seen) else 0.0)
    assert (P[hidden] == 0).all() and P.sum() == pytest.approx(1.0 if len(seen) else 0.0)


def test_a_row_that_sees_nothing_has_output_0_and_lse_minus_inf():
    O, lse = finish(fold(np.full((2, 3), -np.inf), np.ones((3, 4))))
    assert (O == 0).all() and np.isneginf(lse).all()


def test_lse_is_the_natural_logarithm_of_the_sum_of_exp():
    _, lse = finish(fold(SCORES, VALUES[:, None]))
    assert lse == pytest.approx(np.log(np.exp(SCORES).sum()), abs=1e-14)


def test_fold_tree_and_any_split_agree():
    rng = np.random.default_rng(2)
    S, V = 5 * rng.standard_normal((4, 12)), rng.standard_normal((12, 3))
    S[:, 3:6] = -np.inf  # one whole part hidden
    whole = fold(S, V, block=5)
    for cuts in ([3, 6, 9], [1], [0, 12], [2, 3, 5, 7, 11]):
        parts = [fold(s, v, block=2) for s, v in zip(np.split(S, cuts, axis=1), np.split(V, cuts), strict=True)]
        assert_same_state(reduce(merge, parts), whole)
        assert_same_state(reduce(merge, parts[::-1]), whole)
    a, b, c, d = (fold(S[:, i : i + 3], V[i : i + 3]) for i in (0, 3, 6, 9))
    assert_same_state(merge(merge(a, b), merge(c, d)), merge(a, merge(b, merge(c, d))))


def test_the_empty_state_is_merges_identity():
    state, empty = fold(SCORES, VALUES[:, None]), init((), 1, np.float64)
    for merged in (merge(state, empty), merge(empty, state)):
        assert (merged.m, merged.l, merged.acc) == (state.m, state.l, state.acc)
    both = merge(empty, empty)
    assert both.m == -np.inf and both.l == 0 and both.acc == 0


def test_exp2_with_log2e_folded_into_the_scale_is_the_same_function():
    S = np.random.default_rng(3).standard_normal(9) * np.log2(np.e)
    P = np.exp2(S - S.max())
    np.testing.assert_allclose(P / P.sum(), online_softmax(S * np.log(2), block=4), atol=1e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: online_softmax(SCORES, VALUES, block=0), "block must be at least 1, but is 0"),
        (lambda: online_softmax(np.zeros((2, 2, 2))), "but have shape (2, 2, 2)"),
        (lambda: online_softmax(SCORES, VALUES[:3]), "a row for each of the 4 scores, but have shape (3, 1)"),
    ],
)
def test_impossible_arguments_are_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value) and "\n" not in str(error.value)
