"""A barrier program in a class: generators run in the sandbox, the simulator outside, hostile ones harm nobody."""

import json

import numpy as np
import pytest

from flashkit import exercises
from flashkit.exercises.lab_cells import MARKER, graded_cells
from flashkit.exercises.pipelines import run_text
from flashkit.grading import settings
from flashkit.grading.judge import Examiner
from flashkit.grading.room import CodeCell
from flashkit.runtime.call import Outcome
from flashkit.runtime.program import LONGEST, NoProgram, recorded
from tests.classroom.classroom import ROOT

LAB = graded_cells(ROOT / "solutions" / "07_fa3_pipelines" / "07_fa3_pipelines.ipynb")
SOLUTION = MARKER.sub("", LAB["kernel-07-ring"])
EXERCISE = exercises.get("07.ring")


def returning(text: str) -> str:
    return f"def ring(blocks, stages):\n    return {text}"


ENDLESS = '({"producer": iter(lambda: ("arrive", "b"), 0), "consumer": []}, {"b": 1})'
ANSWERS = {
    "solution": (SOLUTION, "right", "15 of 15"),
    "never ends": (SOLUTION.replace("for j in range(blocks):", "while True:\n            j = 0", 1), "wrong",
                   f"producer had not ended after {LONGEST:,} instructions"),
    "hangs": (returning("next(iter(int, 1) for x in iter(int, 1) if x)"), "crashed", "a loop that never ends?"),
    "nothing": (returning("None"), "wrong", "Nothing came back: end the function with `return roles, barriers`"),
    "numbers": (returning('({"producer": [1], "consumer": []}, {})'), "wrong", "producer yields 1: an instruction"),
    "no generator": (returning(ENDLESS), "wrong", "must be a generator or a list"),
    "other verb": (SOLUTION.replace('"arrive"', '"arive"'), "wrong", "did you mean 'arrive'?"),
    "the oracle": (returning("__import__('reference.pipeline_programs').pipeline_programs.ring(blocks, stages)"),
                   "refused", "the course's oracle"),
    "raises": (SOLUTION.replace("use % 2", "use % 0"), "crashed", "divides by zero"),
    "mistaken": (SOLUTION.replace('"drain", 0', '"drain", 1'), "wrong", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def reports():
    """What each answer earns, by its name; each stands in a cell below the last."""
    cells = [CodeCell("imports", LAB["imports"]), *(CodeCell(name, text) for name, (text, *_) in ANSWERS.items())]
    with Examiner(cells, settings.load(ROOT), b"seed") as examiner:
        judged = {name: examiner.examine(EXERCISE, upto) for upto, name in enumerate(ANSWERS, start=2)}
        return {name: done().report for name, done in judged.items()}


@pytest.mark.classroom
@pytest.mark.parametrize("name", ANSWERS)
def test_each_answer_is_judged_and_told_in_one_line(reports, name):
    _, verdict, said = ANSWERS[name]
    assert reports[name].verdict == verdict and said.lower() in str(reports[name]).lower()
    assert reports[name].points == (15 if verdict == "right" else 0)


@pytest.mark.classroom
def test_the_students_line_is_told(reports):
    assert reports["other verb"].student_line().line.strip() == 'yield "arive", f"empty{s}"'


# ---- what a lying child might send


CASE = EXERCISE.cases[1]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "3", "null", "{", '{"roles": 3, "barriers": {}, "lines": {}}', '{"roles": {"producer": [[]]}}',
        '{"roles": {"producer": [["x", "wait"]]}, "barriers": {}, "lines": {}}', "[" * 100_000,
        json.dumps({"roles": {str(n): [] for n in range(10_000)}, "barriers": {}, "lines": {}}),
        json.dumps({"roles": {"producer": [], "consumer": []}, "barriers": {"b": -1}, "lines": {}}),
        json.dumps({"roles": {"producer": [[1, "w" * 100_000]], "consumer": []}, "barriers": {}, "lines": {}}),
        '{"roles": {"producer": [[1e999, "wait", "b", 1]], "consumer": []}, "barriers": {"b": 1}, "lines": {}}',
        json.dumps({"roles": {"\ud800": []}, "barriers": {}, "lines": {}}),
    ],
)  # fmt: skip
def test_any_text_is_a_wrong_answer_with_a_short_line(text):
    outcome = run_text(CASE, Outcome(texts={"program": text}))
    assert outcome.problem.verdict == "wrong" and len(outcome.problem.sentence.encode()) <= 600 and not outcome.outputs
    assert EXERCISE.named([(CASE, outcome)]) in ((), ("last-block",))


def test_a_long_program_is_judged_but_its_mistake_not_looked_for():
    wait = [1, "wait", "b", 1]
    text = json.dumps({"roles": {"producer": [wait] * 3000, "consumer": []}, "barriers": {"b": 1}, "lines": {}})
    outcome = run_text(CASE, Outcome(texts={"program": text}))
    assert outcome.problem.finding.kind == "work left"


# ---- what the recorder writes down


def test_the_recorder_writes_lines_and_instructions():
    def role():
        yield "arrive", "b"

    told = json.loads(recorded(({"a": role()}, {"b": 1})))
    (line,) = {i[0] for i in told["roles"]["a"]}
    assert told["roles"]["a"] == [[line, "arrive", "b"]] and told["barriers"] == {"b": 1}
    assert told["lines"][str(line)].strip() == 'yield "arrive", "b"'


def test_a_parity_may_be_a_comparison():
    told = json.loads(recorded(({"a": [("wait", "b", 1 == 1)]}, {"b": 1})))
    assert told["roles"]["a"] == [[0, "wait", "b", 1]]


def test_numbers_may_be_numpys():
    told = json.loads(
        recorded(({"a": [("wait", "b", np.int64(3) % 2 == 1), ("exp", np.int32(2))]}, {"b": np.int64(2)}))
    )
    assert told["roles"]["a"] == [[0, "wait", "b", 1], [0, "exp", 2]] and told["barriers"] == {"b": 2}


def test_the_recorder_finds_the_line_of_a_generator_inside_a_generator():
    def inner():
        yield "arrive", "inner"

    def outer():
        yield from inner()

    told = json.loads(recorded(({"a": outer()}, {})))
    assert [text.strip() for text in told["lines"].values()] == ['yield "arrive", "inner"']


@pytest.mark.parametrize(
    "result, says",
    [
        (({"a": lambda: 0}, {}), "call it, as in producer()"),
        (({"a": None}, {}), "does it yield?"),
        (({"a" * 41: []}, {}), "short text"),
        (({"a": [("x" * 41,)]}, {}), "an instruction is a tuple"),
        (({"a": [("wait", 1.5)]}, {}), "an instruction is a tuple"),
        (({}, {"b": "1"}), "a whole number for its count"),
        (({}, {"b": True}), "a whole number for its count"),
        ([{}], "return roles, barriers"),
    ],
)
def test_what_is_no_program_is_one_line(result, says):
    with pytest.raises(NoProgram) as error:
        recorded(result)
    assert says in str(error.value) and "\n" not in str(error.value)
