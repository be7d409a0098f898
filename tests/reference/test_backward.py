"""reference.backward: the syllabus's numbers, dense against both tiled orders, differences and torch's autograd."""

import numpy as np
import pytest
import torch

from reference import backward, forward
from reference.forward import Problem
from reference.shapes import FLOAT16, FLOAT32

TILED = [backward.tiled, backward.one_kernel]


def heads(seed, N_q, N_k, d=4, d_v=4):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape) for shape in ((N_q, d), (N_k, d), (N_k, d_v), (N_q, d_v)))


def some_mask(seed, N_q, N_k):
    """Random, with its first query seeing nothing and its last key seen by nobody."""
    mask = np.random.default_rng(seed).random((N_q, N_k)) < 0.6
    mask[0], mask[:, -1] = False, False
    return mask


def assert_close(actual, expected, atol):
    for name, a, e in zip(("dQ", "dK", "dV"), actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("run", [backward.dense, *TILED])
def test_first_worked_example(run):
    """q=1, k=[0, ln 3], v=[2, 6], dO=2: P=[1/4, 3/4], O=5, D=10, dS=[-1.5, 1.5]."""
    p = Problem(np.array([[1.0]]), np.array([[0.0], [np.log(3)]]), np.array([[2.0], [6.0]]), block_q=1, block_k=1)
    dO = np.array([[2.0]])
    O, lse = forward.dense(p)
    assert O.item() == pytest.approx(5) and backward.row_dot(dO, O).item() == pytest.approx(10)
    dQ, dK, dV = run(p, dO)
    np.testing.assert_allclose(dV.T, [[0.5, 1.5]], atol=1e-14)  # dO P
    np.testing.assert_allclose(dK.T, [[-1.5, 1.5]], atol=1e-14)  # dS q
    np.testing.assert_allclose(dQ, [[1.5 * np.log(3)]], atol=1e-14)  # dS K


def test_second_worked_example():
    """P=[.2, .3, .5], V=[1, 3, 5], dO=2: O=3.6, dP=[2, 6, 10], D=7.2, dS=[-1.04, -0.36, 1.4], dV=[.4, .6, 1]."""
    P, V, dO = np.array([[0.2, 0.3, 0.5]]), np.array([[1.0], [3.0], [5.0]]), np.array([[2.0]])
    p = Problem(np.array([[1.0]]), np.log(P).T, V, block_q=1, block_k=2)
    O, _ = forward.dense(p)
    D = backward.row_dot(dO, O)
    assert O.item() == pytest.approx(3.6) and D.item() == pytest.approx(7.2)
    np.testing.assert_allclose(dO @ V.T, [[2, 6, 10]])
    np.testing.assert_allclose(backward.score_gradient(P, dO, V, D), [[-1.04, -0.36, 1.4]], atol=1e-14)
    for run in (backward.dense, *TILED):
        _, dK, dV = run(p, dO)
        np.testing.assert_allclose(dV.T, [[0.4, 0.6, 1.0]], atol=1e-14)
        np.testing.assert_allclose(dK.T, [[-1.04, -0.36, 1.4]], atol=1e-14)


def test_row_sums_of_dS_are_0_and_D_has_two_forms():
    Q, K, V, dO = heads(0, 5, 7)
    p = Problem(Q, K, V, block_q=5, block_k=7)
    O, lse = forward.dense(p)
    P = backward.probabilities(forward.cut(p, 0, 0), lse)
    D = backward.row_dot(dO, O)
    np.testing.assert_allclose(P.sum(axis=1), 1, atol=1e-14)
    np.testing.assert_allclose((P * (dO @ V.T)).sum(axis=1), D, atol=1e-14)
    np.testing.assert_allclose(backward.score_gradient(P, dO, V, D).sum(axis=1), 0, atol=1e-14)


def test_softmax_jacobian():
    """dP_i/dS_j = P_i (delta_ij - P_j): dS of one row, with dP a unit vector, is a row of the Jacobian."""
    P, unit = np.array([[0.2, 0.3, 0.5]]), np.eye(3)
    jacobian = np.diag(P[0]) - np.outer(P[0], P[0])
    for i in range(3):
        dS = backward.score_gradient(P, np.ones((1, 1)), unit[i][:, None], P[0, i : i + 1])
        np.testing.assert_allclose(dS[0], jacobian[i], atol=1e-15)


@pytest.mark.parametrize("run", TILED)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("block_q", "block_k"), [(1, 1), (3, 4), (4, 3), (16, 2), (2, 16), (16, 16)])
@pytest.mark.parametrize(("N_q", "N_k"), [(1, 1), (1, 7), (7, 1), (5, 7), (13, 11), (8, 8)])
def test_tiled_is_dense(run, causal, block_q, block_k, N_q, N_k):
    Q, K, V, dO = heads(N_q * N_k, N_q, N_k, d=3, d_v=5)
    for offset in {0, N_k - N_q, -3, 2} if causal else {0}:
        options = dict(causal=causal, offset=offset, block_q=block_q, block_k=block_k)
        p = Problem(Q, K, V, **options)
        assert_close(run(p, dO), backward.dense(p, dO), 1e-12)
        p = Problem(Q, K, V, mask=some_mask(1, N_q, N_k), scale=0.3, **options)
        assert_close(run(p, dO), backward.dense(p, dO), 1e-12)


@pytest.mark.parametrize("options", [{}, {"causal": True, "offset": -2}, {"causal": True, "offset": 2}, {"scale": 1.7}])
@pytest.mark.parametrize("masked", [False, True])
def test_dense_is_central_differences(options, masked):
    Q, K, V, dO = heads(3, 5, 6, d=3, d_v=2)
    options = options | ({"mask": some_mask(2, 5, 6)} if masked else {})

    def loss(**change):
        return (dO * forward.dense(Problem(**({"Q": Q, "K": K, "V": V} | change), **options))[0]).sum()

    differences = (
        backward.central_differences(lambda x: loss(Q=x), Q),
        backward.central_differences(lambda x: loss(K=x), K),
        backward.central_differences(lambda x: loss(V=x), V),
    )
    assert_close(backward.dense(Problem(Q, K, V, **options), dO), differences, 2e-8)


def test_central_differences_leave_their_argument_alone():
    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(backward.central_differences(lambda y: float((y**2).sum()), x), [2, 4], atol=1e-9)
    assert x.tolist() == [1, 2]


@pytest.mark.parametrize("run", [backward.dense, *TILED])
def test_empty_rows_and_unseen_keys_have_gradient_0(run):
    Q, K, V, dO = heads(4, 5, 6)
    dQ, dK, dV = run(Problem(Q, K, V, mask=some_mask(2, 5, 6), block_q=2, block_k=4), dO)
    assert (dQ[0] == 0).all() and (dK[-1] == 0).all() and (dV[-1] == 0).all()
    with np.errstate(all="raise"):
        for gradient in run(Problem(Q, K, V, causal=True, offset=-5, block_q=2, block_k=4), dO):
            assert (gradient == 0).all()


@pytest.mark.parametrize("run", [backward.dense, *TILED])
@pytest.mark.parametrize(("H_q", "H_kv"), [(2, 2), (4, 2), (3, 1)])
@pytest.mark.parametrize("kind", ["full", "causal", "mask"])
def test_multi_head_is_torch_autograd(run, H_q, H_kv, kind):
    rng = np.random.default_rng(5)
    Q, K = rng.standard_normal((2, H_q, 6, 4)), rng.standard_normal((2, H_kv, 7, 4))
    V, dO = rng.standard_normal((2, H_kv, 7, 3)), rng.standard_normal((2, H_q, 6, 3))
    mask = rng.random((6, 7)) < 0.7
    mask[:, 0] = True
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (Q, K, V))
    spread_k, spread_v = (x.repeat_interleave(H_q // H_kv, dim=1) for x in (k, v))
    torch.nn.functional.scaled_dot_product_attention(
        q, spread_k, spread_v, attn_mask=torch.tensor(mask) if kind == "mask" else None, is_causal=kind == "causal"
    ).backward(torch.tensor(dO))
    options = {"full": {}, "causal": {"causal": True}, "mask": {"mask": mask}}[kind]
    actual = backward.multi_head(Q, K, V, dO, run, block_q=4, block_k=3, **options)
    assert_close(actual, [x.grad.numpy() for x in (q, k, v)], 1e-12)


def test_saved_output_and_lse_are_what_the_backward_reads():
    Q, K, V, dO = heads(6, 5, 6)
    p = Problem(Q, K, V, block_q=2, block_k=2)
    for run in TILED:
        assert_close(run(p, dO, forward.dense(p)), backward.dense(p, dO), 1e-12)
        _, dK, dV = run(p, dO, (np.zeros_like(dO), forward.dense(p)[1]))  # D = 0: dV does not read it, dK does
        _, right_dK, right_dV = backward.dense(p, dO)
        np.testing.assert_allclose(dV, right_dV, atol=1e-12)
        assert abs(dK - right_dK).max() > 1e-3


@pytest.mark.parametrize("run", TILED)
@pytest.mark.parametrize(("arithmetic", "atol"), [(FLOAT32, 1e-5), (FLOAT16, 1e-2)])
def test_low_precision_is_close_and_low(run, arithmetic, atol):
    Q, K, V, dO = heads(7, 9, 9, d=8)
    p = Problem(Q, K, V, block_q=4, block_k=4, arithmetic=arithmetic)
    gradients = run(p, dO)
    assert_close(gradients, backward.dense(p, dO), atol)
    assert {g.dtype for g in gradients} == {np.dtype(np.float32)}
    assert abs(gradients[2] - backward.dense(p, dO)[2]).max() > 1e-9


@pytest.mark.parametrize("run", TILED)
def test_P_and_dS_enter_the_products_in_the_operand_type(run):
    Q, K, V, dO = (x.astype(np.float16) for x in heads(9, 6, 6, d=8))
    p = Problem(Q, K, V, block_q=6, block_k=6, arithmetic=FLOAT16)
    O, lse = forward.tiled(p)
    dO = dO.astype(np.float32)
    P = backward.probabilities(forward.cut(p, 0, 0), lse)
    dS = backward.score_gradient(P, dO, V.astype(np.float32), backward.row_dot(dO, O))
    P, dS = (x.astype(np.float16).astype(np.float64) for x in (P, dS))
    assert_close(run(p, dO), (dS @ K * p.scale, dS.T @ Q * p.scale, P.T @ dO), 3e-6)  # unrounded: 1e-4 away


def test_dO_of_another_shape_is_refused():
    Q, K, V, dO = heads(8, 5, 6)
    for run in TILED:
        with pytest.raises(ValueError, match=r"dO must have O's shape \(5, 4\), but has shape \(4, 4\)"):
            run(Problem(Q, K, V), dO[:4])
