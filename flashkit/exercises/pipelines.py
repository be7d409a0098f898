"""Lab 07, (a) to (c): barrier programs for the simulator. Exercises 07.ring, 07.ping_pong and 07.overlap."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from flashkit.exercises import pipeline_repairs as repairs
from flashkit.exercises.contract import NUMBER, Case, Exercise, Fault
from flashkit.instruments.record import Finding
from flashkit.runtime.call import Call, Outcome, Problem, Returned
from flashkit.runtime.wire import writable
from reference import pipeline_programs
from reference.barrier_program import Instruction, Program, ProgramError, read
from reference.pipeline import Run, Times, simulate
from reference.pipeline_rules import family

SLACK = 1.05  # of the course's makespan where there is a softmax: the order of little things is free
SECONDS = 5.0  # generators of a few hundred instructions take none
LARGEST, CANDIDATES = 500, 64  # instructions of a program whose mistake is looked for; tries of one repair
SAID = 600  # characters of a sentence: names in it are the student's


@dataclass(frozen=True)
class Task:
    """What a program must do: per role, its products and its softmax; tiles of each tensor at most ``stages``."""

    made: pipeline_programs.Made
    times: Times
    stages: int
    turns: bool = False


def _task(case: Case) -> Task:
    o, s = case.options, case.sizes
    times = Times(s["copy"], s["matmul"], s.get("exp", 0), s.get("update", 0))
    if "trips" in o:
        made = pipeline_programs.attention(o["trips"], o["stages"], overlap=True)
        return Task(made, times, o["stages"])
    if "exp" in s:
        made = pipeline_programs.attention([o["blocks"]] * 2, o["stages"], turns=True)
        return Task(made, times, o["stages"], turns=True)
    return Task(pipeline_programs.ring(o["blocks"], o["stages"]), times, o["stages"])


# ---- judging --------------------------------------------------------------------------------------------


def run_text(case: Case, outcome: Outcome) -> Outcome:
    """What the simulator makes of the program that came back as text: a makespan, or a problem."""
    if outcome.problem is not None or "program" not in outcome.texts:
        return outcome
    try:
        told = json.loads(outcome.texts["program"])
        lines = dict(told["lines"])
        program = _program(told)
    except ProgramError as error:
        return replace(outcome, problem=_problem("no program", str(error), error.line, lines))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return replace(outcome, problem=Problem("wrong", "What came back is no program."))
    run = simulate(program, times=_task(case).times)
    kind, sentence, line = _verdict(case, program, run)
    if kind:
        return replace(outcome, problem=_problem(kind, sentence, line, lines))
    return replace(outcome, outputs={"makespan": np.array(float(run.makespan))})


def _program(told: Mapping) -> Program:
    """The program in what :func:`flashkit.runtime.program.recorded` wrote; raises what a wrong text makes it raise."""
    roles = {
        name: [Instruction(verb, tuple(operands), int(line)) for line, verb, *operands in given]
        for name, given in told["roles"].items()
    }
    return read(roles, told["barriers"])


def _problem(kind: str, sentence: str, line: int, lines: Mapping[str, str]) -> Problem:
    text, sentence = writable(str(lines.get(str(line), ""))[:200]), writable(sentence[:SAID])
    finding = Finding(kind, "", (), detail=sentence, lineno=line, line=text)
    return Problem("wrong", sentence, lineno=line, line=text, finding=finding)


def _verdict(case: Case, program: Program, run: Run) -> tuple[str, str, int]:
    """Kind, sentence and line of what is wrong; "" when nothing is but perhaps the makespan."""
    task = _task(case)
    wanted = read(*task.made)
    if set(program.roles) != set(wanted.roles):
        are = ", ".join(program.roles) or "none"
        return "no program", f"The roles must be {', '.join(wanted.roles)}, but they are {are}.", 0
    if run.diagnosis is not None:
        d = run.diagnosis
        return d.kind, f"At {d.time:g}: {d.sentence}", d.instruction.line if d.instruction else 0
    return _unlike(task, program, wanted)


def _unlike(task: Task, program: Program, wanted: Program) -> tuple[str, str, int]:
    """What a program without mistakes leaves undone, or does that it may not."""
    for role, own in program.roles.items():
        came, asked = (Counter(_work(x)) for x in (own, wanted.roles[role]))
        if left := asked - came:
            return "work left", f"{role} ends without {_told(left)}.", 0
        if more := came - asked:
            return "work left", f"{role} also does {_told(more)}, which is not asked for.", 0
    tiles: dict[str, set[str]] = {}
    for _, i in program.all("copy"):
        tiles.setdefault(family(i["tile"]), set()).add(i["tile"])
    for tensor, names in tiles.items():
        if len(names) > task.stages:
            return (
                "too many tiles",
                f"{len(names)} tiles of {tensor} are filled, but there is room for {task.stages}.",
                0,
            )
    return _outside_turn(program) if task.turns else ("", "", 0)


def _work(own: Sequence[Instruction]) -> list[tuple]:
    """What counts of a role: copies by tensor and block, products, exponentials, updates."""
    found: list[tuple] = []
    for i in own:
        if i.verb == "copy":
            found.append(("copy of", f"{family(i['tile'])}{i['block']}"))
        elif i.verb == "matmul":
            found.append(("product", f"{i['product']}{i['block']}"))
        elif i.verb in ("exp", "update"):
            found.append((i.verb, str(i["block"])))
    return found


def _told(work: Counter) -> str:
    return ", ".join(" ".join(item) for item in list(work)[:3]) + (" and more" if len(work) > 3 else "")


def _outside_turn(program: Program) -> tuple[str, str, int]:
    """A product that is queued out of turn. A signal too many after the last turn is none: nobody comes to meet it."""
    for role, own in program.roles.items():
        mine = False
        for i in own:
            mine = True if i.verb == "sync" else False if i.verb == "signal" else mine
            if i.verb == "matmul" and not mine:
                says = f"{role} queues {i['product']}{i['block']} although it is not its turn: sync comes before it"
                return "outside its turn", f"{says}, signal after it.", i.line
    return "", "", 0


# ---- naming ---------------------------------------------------------------------------------------------


def named(faults: Sequence[Fault], seen: Sequence[tuple[Case, Outcome]]) -> tuple[str, ...]:
    """The mistakes whose repair makes the program right on every case; some have a kind of their own."""
    try:
        programs = [(case, _program(json.loads(outcome.texts["program"]))) for case, outcome in seen]
    except (ProgramError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return ()
    failing = [(case, p, o.problem) for (case, p), (_, o) in zip(programs, seen, strict=True) if not _right(case, p)]
    kinds = {problem.finding.kind if problem else "slow" for _, _, problem in failing}
    own = [fault.name for fault in faults if kinds == {KIND_OF.get(fault.name)}]
    if kinds <= {"work left", "trip counts differ"} and all(_leaves_products(case, p) for case, p, _ in failing):
        own = ["last-block"]
    if own or max(sum(map(len, p.roles.values())) for _, p in programs) > LARGEST:
        return tuple(own)
    asked = [fault.name for fault in faults if fault.name in REPAIRS]
    fits = [name for name in asked if all(_repairs(REPAIRS[name], case, p) for case, p, _ in failing)]
    if set(fits) == {"missing-wait", "stage-reused-early"}:
        fits = fits[1:] if any(repairs.waits_for_free(p) for _, p in programs) else fits[:1]
    return tuple(fits)


def _leaves_products(case: Case, program: Program) -> bool:
    wanted = read(*_task(case).made)
    asked, made = ([(role, _work([i])) for role, i in p.all("matmul")] for p in (wanted, program))
    return any(work not in made for work in asked)


def _right(case: Case, program: Program) -> bool:
    run = simulate(program, times=_task(case).times)
    return not _verdict(case, program, run)[0] and run.makespan <= _least(case) * (1 + 1e-9)


def _repairs(repair: repairs.Repair, case: Case, program: Program) -> bool:
    return any(_right(case, p) for p in islice(repair(program), CANDIDATES) if p != program)


REPAIRS: dict[str, repairs.Repair] = {
    "missing-wait": repairs.missing_wait,
    "wrong-phase": repairs.wrong_phase,
    "release-before-use": repairs.released_early,
    "never-released": repairs.never_released,
    "stage-reused-early": repairs.reused_early,
    "producer-short": repairs.producer_short,
    "barrier-count": repairs.wrong_count,
    "trip-counts": repairs.not_handed_back,
    "turn-not-primed": repairs.not_primed,
    "turn-kept": repairs.turn_kept,
    "drained-all": repairs.drained_all,
    "registers-in-use": repairs.registers_in_use,
}
KIND_OF = {"outside-turn": "outside its turn", "too-many-tiles": "too many tiles"}

FAULT = {
    fault.name: fault
    for fault in (
        Fault("missing-wait", "a role does not wait before it reads a tile, or before it fills one again",
              "Before each product: which barrier says that its block is there? Before each copy: which says free?"),
        Fault("wrong-phase", "a wait looks at the other parity",
              "Block j is the (j // stages)-th use of its tile. A new barrier lets `wait 1` pass, not `wait 0`."),
        Fault("release-before-use", "a tile is handed back before the product that reads it is drained",
              "A product is only queued when the role goes on. Which drain says that it has read its tile?"),
        Fault("never-released", "a consumer does not hand a tile back after reading it",
              "What does the producer wait for before it fills a tile again?"),
        Fault("stage-reused-early", "one tile is filled again without waiting for it, or after waiting for another",
              "Which block is the first that needs a tile a second time, and whose barrier is that tile's?"),
        Fault("producer-short", "the producer ends before all blocks are copied",
              "Count the copies and the products of each tensor."),
        Fault("barrier-count", "a barrier's arrival count is not the number of arrivals in a phase",
              "A full barrier has one arrival, its copy's. Who arrives at an empty one?"),
        Fault("trip-counts", "a consumer with fewer blocks than another does not hand back the rest",
              "The producer fills tiles for the longer loop. Who must arrive at their empty barriers?"),
        Fault("turn-not-primed", "nobody gives the first turn", "Who signals before the very first sync?"),
        Fault("turn-kept", "the turn is passed on after waiting or after the softmax, not once the products are queued",
              "What does the other consumer wait for while you compute exponentials?"),
        Fault("outside-turn", "products are queued outside the consumer's turn",
              "sync, then the products, then signal: also for the first S and the last O."),
        Fault("drained-all", "all products are drained before the exponentials, so nothing runs under them",
              "drain 1 leaves the product that was queued last running."),
        Fault("registers-in-use", "O is rescaled and P written while the product that uses them is not drained",
              "update touches the registers of O and P: which product still reads them?"),
        Fault("last-block", "a product is left out, such as those of the last block",
              "Algorithm 2 of the paper leaves the loop one block early. Count your products."),
        Fault("too-many-tiles", "more tiles are filled than there are stages", "Block j goes into tile j % stages."),
    )
}  # fmt: skip

RING = ("missing-wait", "wrong-phase", "release-before-use", "never-released", "stage-reused-early", "producer-short",
        "barrier-count", "last-block", "too-many-tiles")  # fmt: skip
PING_PONG = (*RING, "turn-not-primed", "turn-kept", "outside-turn")
OVERLAP = (*RING, "trip-counts", "drained-all", "registers-in-use")


def _least(case: Case) -> float:
    slack = SLACK if "exp" in case.sizes else 1.0
    return slack * simulate(*_task(case).made, _task(case).times).makespan


def _exercise(id: str, cases: tuple[Case, ...], draw: Callable, faults: Sequence[str], **rest) -> Exercise:
    bank = tuple(FAULT[name] for name in faults)
    return Exercise(
        id=id,
        call=lambda case: Call({}, dict(case.options), (Returned("program", (), "program"),)),
        oracle=lambda case: {"makespan": np.array(_least(case))},
        honest=lambda case: [],
        wrong=lambda case, variant: {},
        cases=tuple(replace(case, dtype="number") for case in cases),
        draw=lambda seed: tuple(replace(case, dtype="number") for case in draw(np.random.default_rng(seed))),
        faults=bank,
        budget=lambda case: {},
        shares=NUMBER,
        seconds=SECONDS,
        at_most=("makespan",),
        simulate=run_text,
        named=lambda seen: named(bank, seen),
        **rest,
    )


# ---- (a) a ring -----------------------------------------------------------------------------------------


def _ring_case(why: str, blocks: int, stages: int, copy: float = 2, matmul: float = 5) -> Case:
    return Case(why, {"copy": copy, "matmul": matmul}, {"blocks": blocks, "stages": stages})


def _draw_rings(rng) -> list[Case]:
    stages = int(rng.integers(2, 5))
    return [
        _ring_case("drawn: one tile", int(rng.integers(2, 8)), 1),
        _ring_case("drawn: several uses of each tile", int(rng.integers(2 * stages + 1, 4 * stages)), stages, 3, 4),
        _ring_case("drawn: slow copies", int(rng.integers(5, 11)), stages, 6, 2),
    ]


RING_EXERCISE = _exercise(
    "07.ring",
    (
        _ring_case("one tile: everything in turn", 4, 1),
        _ring_case("the chapter's double buffer", 4, 2),
        _ring_case("three stages, used unevenly", 10, 3),
        _ring_case("copies slower than products", 7, 2, 5, 2),
        _ring_case("more stages than blocks", 3, 4),
        _ring_case("one block", 1, 2),
    ),
    _draw_rings,
    RING,
    title="A producer, a consumer and a ring of tiles",
    points=15,
    minutes=25,
    difficulty=2,
    signature="ring(blocks, stages) -> roles, barriers    # roles producer, consumer",
    hints=(
        "Block j uses tile j % stages for the (j // stages)-th time, counted from 0.",
        "Producer: wait for empty{s}, copy. Consumer: wait for full{s}, matmul, drain, arrive at empty{s}.",
        "The consumer waits for phase (j // stages) % 2 of full{s}; the producer for the other parity of empty{s}.",
    ),
)

# ---- (b) ping-pong --------------------------------------------------------------------------------------


def _attention_case(why: str, stages: int, matmul: float, exp: float, **options) -> Case:
    sizes = {"copy": 4, "matmul": matmul, "exp": exp, "update": 1}
    return Case(why, sizes, {**options, "stages": stages})


def _draw_turns(rng) -> list[Case]:
    n = int(rng.integers(3, 9))
    return [
        _attention_case("drawn: d = 128", 2, 8, 8, blocks=n),
        _attention_case("drawn: another number of stages", int(rng.integers(2, 5)), 8, 6, blocks=n + 1),
        _attention_case("drawn: one block", 2, 8, 8, blocks=1),
    ]


PING_PONG_EXERCISE = _exercise(
    "07.ping_pong",
    (
        _attention_case("exponentials as long as a product (d = 128)", 2, 8, 8, blocks=5),
        _attention_case("exponentials twice as long (d = 64)", 2, 8, 16, blocks=4),
        _attention_case("four stages, few blocks", 4, 8, 8, blocks=3),
        _attention_case("three stages", 3, 8, 4, blocks=7),
        _attention_case("one block", 2, 8, 8, blocks=1),
    ),
    _draw_turns,
    PING_PONG,
    title="Ping-pong: one consumer's softmax under the other's products",
    points=15,
    minutes=30,
    difficulty=3,
    signature="ping_pong(blocks, stages) -> roles, barriers    # roles producer, consumer0, consumer1",
    hints=(
        "K and V have rings of their own: tiles K{s} and V{s}, barriers of their own. Two consumers read each tile.",
        "A turn: sync on your name, queue O of block j and S of block j + 1, signal on the other's name. Then drain.",
        "Consumer 1 signals consumer 0's name once before everything else; nobody needs a signal after the last turn.",
    ),
)

# ---- (c) intra-warpgroup overlap ------------------------------------------------------------------------


def _draw_overlaps(rng) -> list[Case]:
    a, b = (int(n) for n in rng.integers(2, 8, 2))
    return [
        _attention_case("drawn: one consumer", 2, 8, 8, trips=(a + 1,)),
        _attention_case("drawn: causal, the first consumer ends sooner", 2, 8, 8, trips=(a, a + 2)),
        _attention_case("drawn: causal, the second ends sooner", 2, 8, 6, trips=(b + 3, b)),
    ]


OVERLAP_EXERCISE = _exercise(
    "07.overlap",
    (
        _attention_case("one consumer, full", 2, 8, 8, trips=(6,)),
        _attention_case("exponentials twice as long (d = 64)", 2, 8, 16, trips=(5,)),
        _attention_case("two consumers, full", 2, 8, 8, trips=(5, 5)),
        _attention_case("causal: consumer 1 sees two more blocks", 2, 8, 8, trips=(3, 5)),
        _attention_case("causal, the other way round, three stages", 3, 8, 6, trips=(6, 2)),
        _attention_case("one block", 2, 8, 8, trips=(1,)),
    ),
    _draw_overlaps,
    OVERLAP,
    title="Overlap: the softmax under its own warpgroup's product",
    points=20,
    minutes=35,
    difficulty=4,
    signature="overlap(trips, stages) -> roles, barriers    # trips: key blocks of each consumer",
    hints=(
        "S_0 and its softmax before the loop; S_j, O_j-1 and the softmax of S_j in it; the last O after it.",
        "drain 1 after queueing both: S_j is done, O_j-1 still runs under the exponentials. drain 0 before the update.",
        "A consumer with fewer blocks than max(trips) waits for each block that is left and hands it back unread.",
    ),
)

EXERCISES = (RING_EXERCISE, PING_PONG_EXERCISE, OVERLAP_EXERCISE)
