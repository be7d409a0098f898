"""Cycles of a Hopper step, the exponentials' share, and FlashAttention-3's ablation in the simulator."""

import pytest

from reference import hopper_step as hopper
from reference.pipeline import Times
from reference.pipeline_programs import attention


@pytest.mark.parametrize("d, share", [(64, 1.0), (128, 0.5), (256, 0.25)])
def test_the_exponentials_take_100_50_and_25_per_cent(d, share):
    assert hopper.exp_share(d) == share


@pytest.mark.parametrize("d, cap", [(64, 0.5), (128, 2 / 3), (256, 0.8)])
def test_a_serial_softmax_caps_at_50_67_and_80_per_cent(d, cap):
    times = hopper.step(128, d)
    alone = Times(0, times.matmul, times.exp)
    cycles = hopper.period(lambda n: attention([n], 2), alone)
    assert 2 * times.matmul / cycles == pytest.approx(cap)


def test_the_cycles_are_those_of_a_hand_count():
    times = hopper.step(176, 128)
    assert (times.matmul, times.exp) == (704, 704)
    assert times.update == 64 * 176 * (1 / 64 + 2 / 128 + 1 / 64) + 64 * 128 / 128
    assert times.copy == pytest.approx(2 * 176 * 128 / (12e12 / 132 / 1.83e9))


def test_a_full_tensor_core_is_the_peak():
    assert hopper.tflops(4 * 704, 176, 128) == pytest.approx(989.4, rel=1e-3)


def test_the_papers_numbers_follow_from_its_times():
    assert [round(hopper.measured(name)) for name in hopper.ABLATION] == [661, 582, 570]


def test_at_peak_rates_two_consumers_fill_the_tensor_core_either_way():
    assert [round(hopper.simulated(name)) for name in list(hopper.ABLATION)[:2]] == [989, 989]


def test_one_latency_fitted_to_582_predicts_the_overlap_within_five_per_cent():
    latency = hopper.latency_for("no overlap of softmax and products", 582)
    assert hopper.simulated("no overlap of softmax and products", latency) == pytest.approx(582, rel=2e-3)
    assert hopper.simulated("all of it", latency) == pytest.approx(661, rel=0.05)
    assert 440 < hopper.simulated("no warp specialisation", latency) < 570  # the model asks too much for it
