"""Lab 07's Gluon kernels in the emulator: right under any order of roles and copies; planted faults are found there.

Without a Hopper GPU this is the proof of their answers. What real compilers make of them is tested beside it.
"""

from functools import cache

import pytest
import torch

import flashkit  # noqa: F401  comes before triton
from benchmarks import overlap_order
from flashkit.exercises import lab_cells
from flashkit.instruments import dry_run
from tests.labs import gluon_emulator
from tests.labs.kernels import base_source, patched

STEPS = ("wgmma", "producer", "consumers", "two_products")
FUNCTION = {**{step: f"gluon_{step}" for step in STEPS}, "gluon": "gluon_forward"}


@cache
def kernel(step, patch=()):
    return gluon_emulator.load(patched(base_source(f"07.{step}", "solution"), patch), FUNCTION[step])


def attention(q, k, v, causal, offset, scale):
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1).double() for x in (k, v))
    S = q.double() @ k.mT * scale
    if causal:
        hidden = torch.arange(k.shape[2])[None, :] > torch.arange(q.shape[2])[:, None] + offset
        S = S.masked_fill(hidden, -torch.inf)
    return torch.softmax(S, -1).nan_to_num(0.0) @ v, torch.logsumexp(S, -1)


def errors(function, H_q, H_kv, N_q, N_k, d, causal=None, offset=0, seed=0, programs=3):
    """Largest error of o, and of lse where it is finite; inf if lse is -inf where it should not be."""
    gluon_emulator.Kernel.seed = seed
    function.__globals__["PROGRAMS"] = programs  # few, so that a program has many tiles
    generator = torch.Generator().manual_seed(7)
    q, k, v = (torch.randn(1, h, n, d, generator=generator).half() for h, n in ((H_q, N_q), (H_kv, N_k), (H_kv, N_k)))
    scale = d**-0.5
    o, lse = function(q, k, v, *(() if causal is None else (causal, offset)), scale)
    o_right, lse_right = attention(q, k, v, bool(causal), offset, scale)
    seen = torch.isfinite(lse_right)
    if not torch.equal(torch.isneginf(lse), ~seen):
        return torch.inf, torch.inf
    worst = (lse.double() - lse_right)[seen].abs().max() if seen.any() else torch.zeros(())
    return float((o.double() - o_right).abs().nan_to_num(torch.inf).max()), float(worst)


def is_right(found):
    return found[0] < 2e-3 and found[1] < 1e-5


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("shape", [(2, 1, 130, 300, 64), (1, 1, 1, 1, 128)])
def test_a_step_is_right(step, shape):
    assert is_right(errors(kernel(step), *shape))


WHOLE = [
    (2, 1, 200, 300, 64, False, 0),
    (2, 1, 200, 300, 128, True, 100),
    (1, 1, 450, 450, 64, True, 0),
    (1, 1, 300, 250, 128, True, -77),  # rows that see no key
    (1, 1, 130, 600, 64, True, 433),  # a diagonal across two blocks
    (1, 1, 1, 1000, 128, True, 999),
    (8, 1, 63, 65, 64, True, 2),
    (4, 4, 127, 127, 128, False, 0),
]


@pytest.mark.parametrize("shape", WHOLE)
def test_the_whole_kernel_is_right(shape):
    assert is_right(errors(kernel("gluon"), *shape))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("shape", [*WHOLE, (1, 1, 1025, 1025, 64, True, 0), (2, 2, 1000, 1000, 128, True, 0)])
def test_so_it_is_in_any_order_of_roles_and_copies(shape, seed):
    assert is_right(errors(kernel("gluon"), *shape, seed=seed, programs=2))


@pytest.mark.slow
@pytest.mark.parametrize("d", [64, 128])
def test_the_weights_of_the_causal_kernel_stay_packed_from_turn_to_turn(d):
    """64 numbers in 32 registers: packed and unpacked in every turn, they cost 64 of the loop's 527 instructions."""
    function = lab_cells.solution("07.gluon", "gluon_forward")
    q, k, v = (torch.empty((1, 1, 1024, d), dtype=torch.bfloat16, device="meta") for _ in "qkv")
    (launch,) = dry_run.launches(function, q, k, v, True, 0, d**-0.5)
    _, sass = overlap_order.compiled(launch)
    assert sass.count(" HGMMA") > 64 and sass.count(" PRMT ") < 32


# ---- planted faults: the kind that the emulator finds, and one that only the answer shows


def turned(first, second):
    """The patch that makes two statements change places."""
    return first + second, second + first


WAIT_EMPTY = "mbarrier.wait(empty.index(s), (n // smem.shape[0] & 1) ^ 1)"
WAIT_FULL = "    mbarrier.wait(full.index(n % smem.shape[0]), n // smem.shape[0] & 1)\n"
ARRIVE = "    mbarrier.arrive(empty.index(n % smem.shape[0]))\n"
TRIPS = "for j in range(gl.cdiv(N_k, block_k)):\n        # Fetch K"
RINGS = "rings = (make_ring(q_desc, 2, 1), make_ring(k_desc, stages, 2), make_ring(v_desc, stages, 2))"
S_THEN_RELEASE = (
    "        S = warpgroup_mma(Q_i, K_j.permute((1, 0)), accumulators(block_q, block_k), use_acc=False)\n",
    "        release(keys, j)\n",
)
WAIT_THEN_RELEASE = ("    acc = warpgroup_mma_wait(0, deps=[acc])\n", "    release(values, n)\n")
MUTANTS = {  # name: step, patch, kind
    "missing wait for empty": ("producer", (f"    {WAIT_EMPTY}\n", ""), "arrival count"),
    "missing wait for full": ("producer", (WAIT_FULL, ""), "read before full"),
    "wrong phase of empty": ("producer", ("& 1) ^ 1)", "& 1))"), "deadlock"),
    "wrong phase of full": ("producer", (WAIT_FULL, WAIT_FULL.replace("& 1)", "& 1 ^ 1)")), "read before full"),
    "phase never changes": ("producer", (WAIT_FULL, WAIT_FULL.replace("n // smem.shape[0] & 1", "0")), "deadlock"),
    "never released": ("producer", (ARRIVE, "    s = n\n"), "deadlock"),
    "released before it is read": ("producer", turned(*S_THEN_RELEASE), "read before full"),
    "released while its product runs": ("two_products", turned(*WAIT_THEN_RELEASE), "overwritten"),
    "a stage reused early": ("producer", (WAIT_EMPTY, WAIT_EMPTY.replace("(n //", "((n + 1) //")), "deadlock"),
    "producer one trip short": ("producer", (TRIPS, TRIPS.replace("block_k))", "block_k) - 1)")), "deadlock"),
    "producer one trip long": ("producer", (TRIPS, TRIPS.replace("block_k))", "block_k) + 3)")), "deadlock"),
    "barrier count too high": ("consumers", (RINGS, RINGS.replace("stages, 2", "stages, 3")), "deadlock"),
    "barrier count too low": ("consumers", (RINGS, RINGS.replace("stages, 2", "stages, 1")), "deadlock"),
    "used before it is waited for": ("two_products", ("wait(1, deps=[S])", "wait(2, deps=[S])"), "read before full"),
    "trips differ by role": (
        "gluon",
        ("n = pass_over(rings, n, fetched - blocks)", "n += fetched - blocks"),
        "deadlock",
    ),
    "the last product forgotten": ("two_products", ("[add_values(acc, P, values, blocks - 1)]", "[acc]"), "wrong"),
    "not rescaled": ("two_products", ("    acc = acc * by_row(alpha, acc)\n    P_next", "    P_next"), "wrong"),
}


def outcome(step, patch):
    """The kind of fault that a few orders of roles and copies show, or "wrong", or "right"."""
    shape = (2, 1, 200, 700, 64) + ((True, 500) if step == "gluon" else ())
    for seed in range(4):
        try:
            if not is_right(errors(kernel(step, (patch,)), *shape, seed=seed)):
                return "wrong"
        except gluon_emulator.Fault as fault:
            return fault.kind
    return "right"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_found(name):
    step, patch, expected = MUTANTS[name]
    found = outcome(step, patch)
    assert found == expected
