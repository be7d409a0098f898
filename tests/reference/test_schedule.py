"""The scheduler of chapter 06: its facts, its rules against brute force, and what two warp splits cost."""

import itertools
from dataclasses import replace

import pytest

from reference import schedule
from reference.backward import seen_by
from reference.forward import Problem
from reference.machines import MACHINE
from reference.schedule import ORDERS, Task
from reference.traffic import Shape

SMS = MACHINE["H200"].sms
FULL = Shape(4096, 4096, 128, 128, block_q=128, block_k=64, H_q=8, H_kv=8)
CAUSAL = replace(FULL, causal=True)
TASKS = schedule.forward_tasks(CAUSAL)


def makespan(tasks, places=SMS):
    return schedule.simulate(tasks, places).makespan


def test_eight_heads_are_eight_programs_and_query_tiles_256_in_two_waves():
    assert SMS == 132
    assert len(schedule.head_tasks(FULL)) == 8 and len(schedule.forward_tasks(FULL)) == 256
    waves = schedule.waves(256, SMS)
    assert (waves.count, waves.left) == (2, 124) and round(100 * waves.busy, 1) == 97.0
    run = schedule.simulate(schedule.forward_tasks(FULL), SMS)
    assert run.makespan == 2 * 64 and run.busy == pytest.approx(waves.busy)
    assert schedule.simulate(schedule.head_tasks(FULL), SMS).busy == pytest.approx(8 / 132)


def test_causal_tiles_walk_2_to_64_key_tiles_and_1056_of_2048_pairs():
    costs = [task.cost for task in TASKS[:32]]
    assert (costs[0], costs[-1], sum(costs), 32 * 64) == (2, 64, 1056, 2048)


def test_head_by_head_ends_after_106_units_and_longest_first_after_64():
    ends = {name: makespan(order(TASKS)) for name, order in ORDERS.items()}
    assert ends == {"head by head": 106, "tile by tile": 96, "longest first": 64}


def test_a_static_stride_wastes_longest_first_and_a_snake_does_not():
    tasks = schedule.longest_first(TASKS)
    ends = {
        how: schedule.run_lists(schedule.deal(tasks, SMS, how), SMS).makespan for how in ("stride", "snake", "chunks")
    }
    assert ends == {"stride": 96, "snake": 64, "chunks": 128}


def test_groups_of_four_heads_fill_the_machine_and_groups_of_two_do_not():
    assert [makespan(schedule.grouped(TASKS, heads)) for heads in (1, 2, 4, 8)] == [102, 96, 64, 64]


def test_one_other_flop_costs_16_matrix_flop():
    assert MACHINE["A100"].tflops / 19.5 == 16


@pytest.mark.parametrize("places", (1, 2, 3, 5))
@pytest.mark.parametrize("how", ("stride", "snake", "chunks"))
def test_every_task_runs_once_and_no_place_does_two_things_at_a_time(how, places):
    tasks = [Task(0, n, 1 + n % 4) for n in range(11)]
    runs = (schedule.simulate(tasks, places), schedule.run_lists(schedule.deal(tasks, places, how), places))
    for run in runs:
        assert sorted(span.task.tile for span in run.spans) == list(range(11))
        for place in range(places):
            mine = sorted((span.start, span.end) for span in run.spans if span.place == place)
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(mine))
        assert run.busy == pytest.approx(sum(t.cost for t in tasks) / (places * run.makespan))
        assert run.running(0) == min(places, sum(span.start == 0 for span in run.spans))


def test_longest_first_is_at_most_four_thirds_of_the_best_schedule():
    for costs in ((5, 5, 4, 4, 3, 3, 3), (7, 6, 5, 4, 3, 2), (3, 3, 2, 2, 2)):
        tasks = [Task(0, n, cost) for n, cost in enumerate(costs)]
        places = 3 if len(costs) > 5 else 2
        spread = itertools.product(range(places), repeat=len(costs))
        best = min(
            max(sum(c for c, at in zip(costs, where, strict=True) if at == p) for p in range(places))
            for where in spread
        )
        assert best <= makespan(schedule.longest_first(tasks), places) <= best * (4 - 1 / places) / 3


def test_shares_of_chunks_differ_by_one_task_at_most():
    sizes = [len(own) for own in schedule.deal([Task(0, n, 1) for n in range(256)], 132, "chunks")]
    assert sum(sizes) == 256 and max(sizes) - min(sizes) == 1


def test_the_backward_walks_what_its_oracle_walks():
    import numpy as np

    shape = Shape(50, 70, 2, 2, block_q=8, block_k=16, H_q=4, H_kv=2, causal=True, offset=20)
    problem = Problem(np.zeros((50, 2)), *np.zeros((2, 70, 2)), causal=True, offset=20, block_q=8, block_k=16)
    costs = [task.cost for task in schedule.backward_tasks(shape)]
    assert costs == [2 * len(seen_by(problem, j)) for j in range(shape.key_tiles)] * 2


def test_split_q_exchanges_nothing_and_split_k_more_than_the_tensor_cores_wait_for():
    by_keys, by_rows = schedule.split_k(128, 64, 128), schedule.split_q(128, 64, 128)
    assert (by_rows.exchanged, by_rows.barriers, by_rows.operands) == (0, 0, 4 * 2 * 64 * 128 * 2)
    parts = 4 * 128 * 128 * 4  # four warps, all rows of O, fp32
    assert by_keys.exchanged == 2 * parts + (1 + 4) * 2 * 4 * 128 * 4
    assert by_keys.operands == (4 * 128 * 128 + 2 * 64 * 128) * 2
    assert (by_keys.accumulator, by_rows.accumulator) == (512, 128)
    cycles = 4 * 128 * 64 * 128 / MACHINE["A100"].matrix_rate
    assert by_rows.bytes / 128 < cycles < by_keys.bytes / 128


@pytest.mark.parametrize("wrong", (lambda: schedule.simulate([], 0), lambda: schedule.deal([], 3, "fairly")))
def test_what_cannot_be_is_said(wrong):
    with pytest.raises(ValueError, match="must be"):
        wrong()
