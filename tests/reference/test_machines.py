"""reference.machines: the roofline's arithmetic, and data that agree with each other."""

import pytest

from reference.machines import MACHINE, MACHINES, PYRAMID


def test_the_six_gpus_of_the_chapter_and_one_that_was_measured():
    assert [m.name for m in MACHINES if not m.measured] == ["A100", "H100", "H200", "B200", "T4", "RTX 4090"]
    assert [m.name for m in MACHINES if m.measured] == ["H200 measured"]
    assert all(m.source for m in (*MACHINES, *PYRAMID))


def test_balance_of_the_measured_h200_is_187_flop_a_byte():
    assert round(MACHINE["H200 measured"].balance) == 187


@pytest.mark.parametrize("machine", [m for m in MACHINES if not m.measured], ids=lambda m: m.name)
def test_the_peak_is_what_the_sms_do_a_clock(machine):
    assert machine.matrix_rate * machine.sms * machine.clock * 1e9 == pytest.approx(machine.tflops * 1e12, rel=0.005)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_the_roof_bends_at_the_balance(machine):
    below, bend, above = (machine.attainable(machine.balance * factor) for factor in (0.5, 1, 2))
    assert (
        below == pytest.approx(machine.tflops / 2) and bend == pytest.approx(machine.tflops) and above == machine.tflops
    )


def test_the_slower_of_arithmetic_and_traffic_sets_the_time():
    h100 = MACHINE["H100"]
    assert h100.seconds(989.4e12, 1.0) == pytest.approx(1) and h100.seconds(1.0, 3.35e12) == pytest.approx(1)


def test_a_measurement_stays_below_the_peak():
    peak, measured = MACHINE["H200"], MACHINE["H200 measured"]
    assert measured.tflops < peak.tflops and measured.hbm_tbs < peak.hbm_tbs


def test_the_pyramid_widens_and_slows_downwards():
    sizes = [level.bytes for level in PYRAMID]
    known = [level.tbs for level in PYRAMID if level.tbs]
    assert sizes[1:] == sorted(sizes[1:]) and known == sorted(known, reverse=True)
    shared = next(level for level in PYRAMID if level.name == "shared memory")
    assert shared.tbs == pytest.approx(132 * 128 * 1.83e9 / 1e12, rel=0.01)
