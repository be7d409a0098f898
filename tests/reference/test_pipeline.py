"""The event simulator: closed forms, each kind of mistake with its sentence, and what is no program."""

import itertools

import pytest

from reference.barrier_program import LONGEST, ProgramError, read
from reference.pipeline import KINDS, Times, simulate
from reference.pipeline_programs import attention, makespan, ring


def changed(made, role, old, new, at=None):
    """The program with each ``old`` instruction of a role, or only the ``at``-th, replaced by the list ``new``."""
    roles, barriers = made
    places = [n for n, i in enumerate(roles[role]) if i == old]
    assert places, old
    places = places if at is None else [places[at]]
    kept = [new if n in places else [i] for n, i in enumerate(roles[role])]
    return {**roles, role: [i for part in kept for i in part]}, barriers


def diagnosed(made, times=None):
    return simulate(*made, times).diagnosis


# ---- closed forms


def test_the_chapters_example_takes_28_in_series_and_22_with_two_buffers():
    assert simulate(*ring(4, 1)).makespan == 28
    assert simulate(*ring(4, 2)).makespan == 22
    assert round(28 / 22, 2) == 1.27


@pytest.mark.parametrize("copy, matmul", [(2, 5), (5, 2), (3, 3), (0.5, 4), (7, 0)])
@pytest.mark.parametrize("blocks, stages", [*itertools.product((1, 2, 3, 4, 9), (1, 2, 3, 4, 12))])
def test_a_ring_takes_what_the_closed_form_says(blocks, stages, copy, matmul):
    run = simulate(*ring(blocks, stages), Times(copy, matmul))
    assert run.diagnosis is None
    assert run.makespan == makespan(blocks, stages, copy, matmul)
    assert run.busy("tensor core") == blocks * matmul and run.busy("copy engine") == blocks * copy


def period(consumers: int, matmul: float, exp: float, update: float = 0.0, overlap: bool = False) -> float:
    """Time a block of the attention program takes in the steady state, one consumer or two in turns, copies all hidden.

    What one consumer must do in turn, or what its fellow and it ask of one unit, whichever is more.
    """
    in_turn = matmul + max(matmul, exp) if overlap else 2 * matmul + exp
    return max(in_turn + update, *(consumers * busy for busy in (2 * matmul, exp, update)))


@pytest.mark.parametrize("consumers, overlap", [*itertools.product((1, 2), (False, True))])
@pytest.mark.parametrize(
    "matmul, exp, update", [(1, 0, 0), (3, 1, 2), (8, 8, 2), (8, 16, 0), (8, 20, 2), (2, 30, 1), (1, 2, 9)]
)
def test_a_block_of_attention_takes_what_the_closed_form_says(matmul, exp, update, consumers, overlap):
    def ends(blocks):
        made = attention([blocks] * consumers, 2, turns=consumers == 2, overlap=overlap)
        return simulate(*made, Times(0.01, matmul, exp, update)).makespan

    assert (ends(40) - ends(20)) / 20 == pytest.approx(period(consumers, matmul, exp, update, overlap))


@pytest.mark.parametrize("d, exp", [(64, 100), (128, 50), (256, 25)])
def test_a_serial_softmax_caps_the_tensor_core(d, exp):
    """One consumer, exponentials at 50 % of the two products (d = 128): 1 / 1.5 of the tensor core's peak."""
    product = 2 * 64 * 128 * d / 4096
    times = Times(copy=1, matmul=product, exp=64 * 128 / 16)
    assert times.exp / (2 * product) == exp / 100
    steps = [simulate(*attention([n], 2), times) for n in (10, 20)]
    busy, took = (steps[1].busy("tensor core") - steps[0].busy("tensor core"), steps[1].makespan - steps[0].makespan)
    assert busy / took == pytest.approx(1 / (1 + exp / 100))


@pytest.mark.parametrize("turns, overlap", [*itertools.product((False, True), repeat=2)])
@pytest.mark.parametrize("stages", (1, 2, 3))
def test_two_consumers_are_right_and_fill_each_others_gaps(stages, turns, overlap):
    run = simulate(*attention([8, 8], stages, turns, overlap), Times(100, 700, 700, 50))
    assert run.diagnosis is None
    alone = simulate(*attention([8], stages), Times(100, 700, 700, 50))
    assert run.makespan < 2 * alone.makespan * 0.8


@pytest.mark.parametrize("trips", [[1, 1], [3, 5], [5, 3], [4, 1], [2, 7, 4]])
def test_consumers_with_other_trip_counts_hand_their_tiles_back(trips):
    assert all(diagnosed(attention(trips, stages, overlap=o)) is None for stages in (1, 2, 3) for o in (False, True))


def test_overlap_hides_the_softmax_of_one_consumer():
    serial, overlapped = (simulate(*attention([20], 2, overlap=o), Times(100, 700, 700)) for o in (False, True))
    assert overlapped.makespan < 0.75 * serial.makespan


def test_the_same_program_gives_the_same_run():
    one, two = (simulate(*attention([5, 5], 2, True, True), Times(90, 700, 700, 60)) for _ in range(2))
    assert one.spans == two.spans and one.flips == two.flips


# ---- mistakes


def test_a_missing_wait_is_a_read_before_full_even_when_the_times_are_kind():
    made = changed(ring(4, 2), "consumer", ("wait", "full1", 0), [])
    for times in (None, Times(copy=0.01, matmul=5)):
        found = diagnosed(made, times)
        assert found.kind == "read before full"
        assert found.sentence == "consumer reads block 1 in K1 without having waited for its copy."


def test_a_missing_wait_of_the_producer_overwrites():
    found = diagnosed(changed(ring(4, 2), "producer", ("wait", "empty0", 0), []))
    assert (found.kind, found.role) == ("overwrite before last read", "producer")
    assert found.sentence == "producer copies block 2 into K0 before block 0 has been read."


def test_a_tile_released_before_its_product_is_done_may_be_overwritten():
    roles, barriers = ring(4, 2)
    at = roles["consumer"].index(("drain", 0))
    roles["consumer"][at : at + 2] = reversed(roles["consumer"][at : at + 2])
    assert diagnosed((roles, barriers)).kind == "overwrite before last read"


def test_a_wrong_first_phase_is_a_deadlock_that_says_who_waits():
    found = diagnosed(changed(ring(4, 2), "producer", ("wait", "empty0", 1), [("wait", "empty0", 0)]))
    assert found.kind == "deadlock" and found.time == 0
    assert [w.role for w in found.waiting] == ["producer", "consumer"]
    assert found.sentence.startswith(
        "Nobody can go on: producer waits for phase 0 of empty0 (0 of 1 arrivals in phase 0)"
    )


def test_a_count_too_high_is_an_arrival_count():
    roles, barriers = ring(4, 2)
    found = diagnosed((roles, {**barriers, "empty0": 2}))
    assert found.kind == "arrival count"
    assert "empty0 stays as it is: 1 of 2 arrivals have come in its phase 0, from consumer" in found.sentence


def test_a_count_too_low_is_no_luck_for_two_consumers():
    roles, barriers = attention([4, 4], 2)
    kinds = {diagnosed((roles, {**barriers, "empty_k0": 1}), Times(c, 5)).kind for c in (0.1, 2, 50)}
    assert kinds <= {"arrival count", "overwrite before last read"}


def test_a_producer_one_trip_short_is_named_with_both_counts():
    roles, barriers = ring(4, 2)
    found = diagnosed(({**roles, "producer": roles["producer"][:-2]}, barriers))
    assert found.kind == "trip counts differ" and found.waiting
    assert found.sentence.startswith("3 K blocks are copied, 4 are read: they differ in block 3. So consumer waits for")


def test_a_consumer_one_trip_short_is_found_although_everybody_ends():
    roles, barriers = ring(4, 2)
    found = diagnosed(({**roles, "consumer": roles["consumer"][:-4]}, barriers))
    assert found.kind == "trip counts differ" and not found.waiting


def test_a_tile_that_nobody_hands_back_is_never_refilled():
    roles, barriers = ring(4, 2)
    roles["consumer"] = [i for i in roles["consumer"] if i != ("arrive", "empty1")]
    assert diagnosed((roles, barriers)).kind == "never refilled"


def test_a_block_read_from_another_tile_is_never_refilled():
    found = diagnosed(changed(ring(4, 2), "consumer", ("matmul", "C", "K1", 3), [("matmul", "C", "K0", 3)]))
    assert found.sentence == "consumer wants block 3 in K0, which is filled with block 2 and never refilled with it."


def test_a_consumer_that_forgets_to_hand_tiles_back_stops_the_others():
    roles, barriers = attention([2, 6], 2)
    mine = attention([2, 2], 2)[0]["consumer0"]
    assert diagnosed(({**roles, "consumer0": mine}, barriers)).kind == "arrival count"


def test_an_unprimed_ping_pong_never_starts():
    made = changed(attention([4, 4], 2, turns=True), "consumer1", ("signal", "turn0", 2), [], at=0)
    found = diagnosed(made)
    assert found.kind == "deadlock" and "consumer0 waits at turn0 (1 of 2 have come)" in found.sentence


def test_registers_may_not_be_written_while_a_product_reads_them():
    roles, barriers = attention([4], 2, overlap=True)
    no_drain = [i for n, i in enumerate(roles["consumer"]) if not (i == ("drain", 0) and n > 8)]
    found = diagnosed(({**roles, "consumer": no_drain}, barriers))
    assert found.kind == "overwrite before last read" and "drain it first" in found.sentence


def test_a_wait_that_passes_by_luck_is_called_so():
    roles = {"a": [("arrive", "b"), ("arrive", "b")], "z": [("wait", "b", 1)]}
    assert diagnosed((roles, {"b": 1})).kind == "phase by luck"


def test_every_kind_is_met_here():
    assert len(KINDS) == 7 and all(f'"{kind}"' in open(__file__).read() for kind in KINDS)


# ---- what is no program


def endless():
    while True:
        yield "arrive", "b"


@pytest.mark.parametrize(
    "roles, says",
    [
        ({"a": endless()}, f"a had not ended after {LONGEST:,} instructions: is there a loop that never ends?"),
        ({"a": [3]}, "a yields 3: an instruction is a tuple such as ('wait', 'full0', 0)."),
        ({"a": [("wiat", "b", 0)]}, "there is no instruction 'wiat'; did you mean 'wait'?"),
        ({"a": [("wait", "b")]}, "'wait' wants barrier, phase, such as ('wait', 'full0', 0)."),
        ({"a": [("wait", "b", 2)]}, "'wait' wants barrier, phase"),
        ({"a": [("wait", "c", 0)]}, "no barrier has that name; there are b."),
        ({"a": endless}, "call it, as in producer()"),
        ({"a": "wait"}, "must be a generator or a list"),
        (3, "A program is two dicts"),
    ],
)
def test_what_is_no_program_gets_one_line(roles, says):
    with pytest.raises(ProgramError) as error:
        read(roles, {"b": 1})
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_count_must_be_a_whole_number_of_one_or_more():
    for count in (0, -1, 1.5, True, "1"):
        with pytest.raises(ProgramError, match="count of 1 or more"):
            read({"a": []}, {"b": count})
