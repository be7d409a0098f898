"""Cases in child processes: what hangs or dies is told, the others are judged, and nothing waits for the end."""

import json
import queue
from types import SimpleNamespace

import pytest

from benchmarks import children

CHILD = """
import json, os, sys, time

print("what a library prints", flush=True)
for case in sys.argv[2:]:
    if case.startswith("hangs"):
        time.sleep(600)
    if case.startswith("dies"):
        os.kill(os.getpid(), 9)
    if case.startswith("raises"):
        raise ValueError("as planned")
    print(json.dumps({"case": case, "right": True}), flush=True)
"""


@pytest.fixture
def judged(tmp_path, monkeypatch):
    (tmp_path / "played.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(*jobs, seconds=60.0, at_once=1):
        told = []
        children.run("played", jobs, seconds, told.append, at_once)
        return {found["case"]: found.get("ended", "right") for found in told}

    return run


def test_a_case_that_dies_or_raises_does_not_cost_the_next_one(judged):
    found = judged(["a", "dies", "b"], ["raises", "c"], at_once=2)
    assert found["a"] == found["b"] == found["c"] == "right"
    assert found["dies"].startswith("It died with status -9")
    assert found["raises"] == "It died with status 1: ValueError: as planned"


def test_a_job_whose_cases_keep_dying_is_given_up(judged):
    found = judged(["dies", "raises", "a"])
    assert list(found) == ["dies", "raises", "a"] and found["a"] == children.NOT_TRIED


def test_a_case_that_hangs_is_ended(judged):
    assert judged(["hangs"], seconds=0.5) == {"hangs": "It hangs: nothing came for 0.5 s."}


def test_what_came_before_a_case_that_hangs_is_kept(judged, monkeypatch):
    class Lines(queue.Queue):
        """Waits however long the machine takes to start the child, and for the hanging case not at all."""

        left = 2

        def get(self, timeout):
            if not self.left:
                raise queue.Empty
            self.left -= 1
            return super().get(timeout=60)

    monkeypatch.setattr(children, "queue", SimpleNamespace(Queue=Lines, Empty=queue.Empty))
    assert judged(["a", "hangs"], seconds=8.0) == {"a": "right", "hangs": "It hangs: nothing came for 8 s."}


def test_the_child_tells_each_case_at_once(capsys):
    told = []

    def one(case):
        told.append(capsys.readouterr().out)
        return {"right": case == "a"}

    children.answer(["a", "b"], one)
    assert [json.loads(line) for line in told[1].splitlines()] == [{"case": "a", "right": True}]
    assert json.loads(capsys.readouterr().out) == {"case": "b", "right": False}
