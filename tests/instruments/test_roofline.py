"""The prediction: limits it must keep, directions it must show, and the workload's sums against the ledger."""

from dataclasses import replace

import pytest

from flashkit.instruments import workload
from flashkit.instruments.listing import Listing, Mix
from flashkit.instruments.resources import Resources
from flashkit.instruments.roofline import Constants, hbm_bytes, makespan, predict, queued
from flashkit.instruments.workload import Work
from reference.machines import MACHINE
from reference.traffic import Shape, fa2, naive, total

H200 = MACHINE["H200 measured"]
SHAPE = Shape(4096, 4096, 64, 64, 64, 64, B=4, H_q=16, H_kv=16)
LOOP = Mix(issued=403, cycles=714, special=34, matrix=262144.0, barriers=3, shuffles=8)
FORWARD = Resources("forward", 90, "ok", 125, 0, 57344, 0, 128, Listing(replace(LOOP, cycles=1500), [LOOP]))
COPY = Resources("copy", 90, "ok", 32, 0, 0, 0, 128, Listing(Mix(issued=60, cycles=80), []))


def seconds(row=FORWARD, work=None, machine=H200, **options):
    return predict(row, work or workload.forward(SHAPE), machine, **options).seconds


def test_a_copy_takes_its_bytes_over_the_bandwidth():
    size = 2**32
    work = Work((0,) * 65536, 2 * size, size, size)
    found = predict(COPY, work, H200)
    assert found.binds == "HBM" and found.seconds == pytest.approx(2 * size / (H200.hbm_tbs * 1e12), rel=0.05)


def test_nothing_is_faster_than_its_busiest_unit():
    found = predict(FORWARD, workload.forward(SHAPE), H200)
    trips = sum(workload.forward(SHAPE).trips) / H200.sms
    assert found.seconds > trips * LOOP.cycles / (H200.clock * 1e9) and found.binds == "arithmetic"


def test_spills_wider_loops_and_fewer_stages_cost_time():
    assert seconds(replace(FORWARD, spills=400)) > seconds()
    assert seconds(stages=1) > seconds(stages=3) >= seconds(stages=4)


def test_few_programs_leave_the_machine_idle():
    one, all_ = replace(SHAPE, B=1, H_q=1, H_kv=1), SHAPE
    assert seconds(work=workload.forward(one)) > 2 * seconds(work=workload.forward(all_)) / 64  # 64 programs, 132 SMs


def test_a_last_wave_costs_a_whole_program():
    per_sm = 4 * H200.sms
    full, one_more = (Work((64,) * n, 10**6, 10**6, 10**3) for n in (per_sm, per_sm + 1))
    assert seconds(work=one_more) > 1.2 * seconds(work=full)


def test_a_small_launch_costs_at_least_the_launch():
    assert Constants().launch < seconds(COPY, Work((0,), 64, 64, 64)) < 5e-6


def test_what_does_not_fit_has_no_time():
    with pytest.raises(ValueError, match="does not fit"):
        predict(replace(FORWARD, shared=300 * 1024), workload.forward(SHAPE), H200)


def test_rereads_come_from_l2_until_they_are_larger_than_it():
    small = Work((1,), requested=10**9, distinct=10**7, written=10**6, live=10**6)
    large = replace(small, live=10**10)
    assert hbm_bytes(small, H200, Constants()) == small.distinct + small.written
    assert 0.9e9 < hbm_bytes(large, H200, Constants()) < 1e9 + 10**7


def test_what_the_launch_before_wrote_is_warm_as_far_as_it_fits():
    cold = Work((0,), 2 * 10**7, 10**7, 10**7)
    assert hbm_bytes(replace(cold, warm=10**7), H200, Constants()) == 10**7


def test_makespan_of_equal_programs_is_waves_times_a_program():
    assert makespan((10,) * 264, 132, 2, lambda n: 3.0 * n, lambda n: 1.0) == 10 * 6 + 1
    assert makespan((10,) * 265, 132, 2, lambda n: 3.0 * n, lambda n: 1.0) == (10 * 6 + 1) + (10 * 3 + 1)


def test_makespan_of_uneven_programs_depends_on_their_order():
    light_first, heavy_first = tuple(range(1, 65)) * 4, tuple(range(64, 0, -1)) * 4
    assert makespan(light_first, 132, 1, lambda n: 1.0, lambda n: 0.0) > makespan(
        tuple(sorted(heavy_first, reverse=True)), 132, 1, lambda n: 1.0, lambda n: 0.0
    )


@pytest.mark.parametrize("causal", [False, True])
def test_the_forwards_bytes_are_the_ledgers(causal):
    s = replace(SHAPE, causal=causal, N_q=1000, N_k=1000)
    work = workload.forward(s)
    assert work.requested == total(fa2(s)) and len(work.trips) == s.heads * s.query_tiles
    assert sum(work.trips) == s.heads * sum(s.visited(i) for i in range(s.query_tiles))
    assert work.distinct == 3 * s.heads * 1000 * 64 * 2


def test_naive_attentions_three_launches_move_the_ledgers_bytes():
    s = Shape(512, 512, 64, 64, 64, 64)
    assert sum(work.requested for work in workload.naive_attention(s)) == total(naive(s))


def test_the_two_gradients_walk_the_same_pairs_of_tiles():
    s = replace(SHAPE, N_q=512, N_k=512, causal=True)
    assert sum(workload.query_gradient(s).trips) == sum(workload.key_value_gradients(s).trips)
    assert workload.query_gradient(s).requested > workload.forward(s).requested


def test_blocks_queue_at_units_as_mean_value_analysis_says():
    """One unit: nobody waits alone, n blocks take n turns. Two equal units: 1, 2/3 and 3/4 of the work is hidden."""
    assert [queued(n, [100.0], 0.0) for n in (1, 2, 5)] == [100, 200, 500]
    assert queued(1, [100.0, 100.0], 50.0) == 250
    assert [queued(n, [100.0, 100.0], 0.0) for n in (1, 2, 3)] == pytest.approx([200, 300, 400])
    assert queued(4, [100.0, 10.0], 500.0) > 4 * 100 and queued(0, [100.0], 50.0) == 50


def test_a_loop_laid_out_in_chains_waits_more_the_fewer_its_siblings():
    chained = replace(FORWARD, listing=replace(FORWARD.listing, scheduled=3 * LOOP.cycles))
    slower = [
        seconds(replace(chained, registers=r)) / seconds(replace(FORWARD, registers=r)) for r in (125, 255)
    ]  # 4 and 2 blocks an SM
    assert 1 < slower[0] < slower[1]
