"""The fair timer on a clock of our own: ratios, the control, neighbours, and work that hides from the device."""

import random

import pytest

from flashkit.instruments.timing import ATTEMPTS, compare, measure, median_ratio


class FakeGPU:
    """Runs nothing: a call is a function of no arguments that gives its seconds; ``load`` stretches what it meets."""

    def __init__(self, load=lambda turn: 1.0, hidden=0.0, others=""):
        self.load, self.hidden, self.others = load, hidden, others
        self.turn, self.seeds = 0, []

    def refresh(self, seed):
        self.seeds.append(seed)

    def run(self, call):
        self.turn += 1
        seconds = call() * self.load(self.turn)
        return seconds, seconds + 20e-6 + (self.hidden if call is slow_elsewhere else 0.0)

    def state(self):
        return {"name": "fake", "clocks.sm": "1000"}

    def busy(self):
        return self.others


def baseline():
    return 1e-3


def faster():
    return 0.8e-3


def slow_elsewhere():
    return 0.1e-3


def quiet(done, total):
    pass


def noise(width, seed=0):
    chance = random.Random(seed)
    return lambda turn: 1 + chance.uniform(-width, width)


def test_a_kernel_is_measured_as_a_ratio_of_the_baseline():
    timing = compare(faster, baseline, FakeGPU(noise(0.01)), show=quiet)
    assert timing.verdict == "measured" and timing.attempts == 1 and timing.rounds == 15
    assert timing.ratio.value == pytest.approx(0.8, rel=0.02) and timing.ratio.low <= 0.8 <= timing.ratio.high * 1.01
    assert timing.control.value == pytest.approx(1, abs=0.02)
    assert timing.seconds == pytest.approx(0.8e-3, rel=0.02) and len(timing.state) == 2


def test_a_against_a_is_one():
    timing = compare(baseline, baseline, FakeGPU(noise(0.01, 3)), show=quiet)
    assert timing.ratio.value == pytest.approx(1, abs=0.03) and timing.control.value == pytest.approx(1, abs=0.03)


def test_every_round_has_new_inputs_and_no_attempt_repeats_them():
    gpu = FakeGPU(noise(0.5))
    compare(faster, baseline, gpu, show=quiet)
    rounds = gpu.seeds[1:16]
    assert len(set(rounds)) == 15 and ATTEMPTS * 15 <= len(set(gpu.seeds))


def test_a_slow_drift_of_the_clock_changes_nothing():
    timing = compare(faster, baseline, FakeGPU(lambda turn: 1 + turn / 50), show=quiet)
    assert timing.verdict == "measured" and timing.ratio.value == pytest.approx(0.8, rel=0.01)


def test_a_neighbours_load_is_unstable_and_no_lower_grade():
    chance = random.Random(1)
    timing = compare(faster, baseline, FakeGPU(lambda turn: chance.choice((1, 1, 1, 2.5, 4))), show=quiet)
    assert timing.verdict == "UNSTABLE" and timing.attempts == ATTEMPTS and timing.why


def test_rounds_that_differ_too_much_are_unstable_whatever_their_median():
    timing = compare(faster, baseline, FakeGPU(noise(0.6, 8)), show=quiet)
    assert timing.verdict == "UNSTABLE"


def test_a_neighbour_that_only_meets_the_control_is_seen_by_it():
    timing = compare(faster, baseline, FakeGPU(lambda turn: 1.2 if turn > 15 and turn % 6 in (0, 1) else 1), show=quiet)
    assert timing.verdict == "UNSTABLE" and "against itself" in timing.why


def test_a_neighbour_that_leaves_is_forgiven():
    chance = random.Random(2)
    passing = FakeGPU(lambda turn: chance.choice((1, 3)) if turn < 100 else 1)
    timing = compare(faster, baseline, passing, show=quiet)
    assert timing.verdict == "measured" and timing.attempts == 2


def test_a_gpu_in_use_is_not_timed():
    timing = compare(faster, baseline, FakeGPU(others="other processes use this GPU (17)"), show=quiet)
    assert timing.verdict == "not timed" and timing.ratio is None and "17" in str(timing)


def test_faster_than_physics_is_not_believed():
    assert compare(faster, baseline, FakeGPU(), floor=1e-3, show=quiet).verdict == "implausible"
    assert compare(faster, baseline, FakeGPU(), floor=0.85e-3, show=quiet).verdict == "measured"


def test_work_that_the_devices_clock_does_not_see_is_not_believed():
    timing = compare(slow_elsewhere, baseline, FakeGPU(hidden=2e-3), show=quiet)
    assert timing.verdict == "implausible" and "outside the timed stream" in timing.why


def test_measure_warms_up_and_gives_one_time_a_round():
    gpu = FakeGPU()
    assert measure(faster, gpu, rounds=7) == [0.8e-3] * 7 and gpu.turn == 12 and len(set(gpu.seeds)) == 7


def test_the_interval_holds_the_median_and_narrows_with_quiet():
    wide, narrow = (median_ratio([1 + n for n in noise_list(width)], [1.0] * 31) for width in (0.3, 0.01))
    assert wide.low <= wide.value <= wide.high and narrow.high - narrow.low < wide.high - wide.low
    assert narrow.narrow and not wide.narrow


def noise_list(width):
    chance = random.Random(5)
    return [chance.uniform(-width, width) for _ in range(31)]


def test_progress_is_shown(capsys):
    compare(faster, baseline, FakeGPU())
    assert "15/15" in capsys.readouterr().err
