"""Check an exercise: run it, compare it, name the mistake, count its bytes, compile it, and say so.

from flashkit.check import check, hint
check("03.causal", attention_causal)
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from flashkit import exercises, progress
from flashkit.check import choice_report, cuda, gluon, launch_options, made_of
from flashkit.check.compare import judge
from flashkit.check.cost import Target, cost, here
from flashkit.check.diagnose import Diagnosis, Observation, diagnose, where
from flashkit.check.gpu_machine import ChildReport, check_on_gpu, time_on_gpu
from flashkit.check.grid import sweep
from flashkit.check.report import Report
from flashkit.check.score import bytes_requested, points
from flashkit.check.timing import TimeReport
from flashkit.exercises.contract import Case, Exercise
from flashkit.instruments import compile_gate
from flashkit.instruments.hooks import interpreting
from flashkit.runtime.call import Outcome, Problem
from flashkit.runtime.explain import explain_compile
from flashkit.runtime.runner import from_explanation, run

__all__ = ["check", "check_time", "conclude", "find", "hint", "observe", "sweep"]

COMPILE_SECONDS = 60.0


def check(
    id: str, function: Callable, cases: Sequence[Case] | None = None, show: bool = True, target: Target | None = None
) -> Report | ChildReport:
    """Judge ``function`` as exercise ``id`` on its public cases (or on ``cases``) and return a :class:`Report`.

    Runs in this process, so that prints and breakpoints work. ``show=False`` keeps what it prints out of sight;
    ``target`` is the GPU to compile and predict for, where it is not this machine's.
    Where Triton compiles for a GPU, the public cases are judged in children instead, and the report is theirs.
    Never raises for what student code does; a wrong id or something that is no function is one clear line.
    """
    exercise, target = find(id), target or here()
    if not callable(function):
        raise TypeError(f"check({id!r}, ...) wants your function, but got {type(function).__name__}: {function!r:.60}")
    if not exercise.needs_gpu and ("compiles" in exercise.shares or exercise.tuning) and not interpreting():
        return check_on_gpu(id, function, float(exercise.points), target)
    if exercise.cuda is not None:
        observations, pending, _ = cuda.observe(exercise, function, cases or exercise.cases, show)
    elif exercise.gluon:
        observations, pending = gluon.observe(exercise, function, show)
    else:
        asked, gate = cases or exercise.cases, exercise.tuning is None  # launch choices are compiled for their own
        observations, pending = observe(exercise, function, asked, show, compile=gate, arch=_arch(exercise, target))

    def again(case: Case, **options) -> Outcome:
        return run(function, exercise.call(case), show=False, **options)

    report = conclude(exercise, observations, pending, again, public=cases is None, target=target)
    if exercise.tuning is not None:
        report = choice_report.report(
            exercise, report, choice_report.launched(observations), show=choice_report.progress_line
        )
    if cases is None and progress.in_a_notebook():
        progress.checked(id, report.points, report.out_of)
    return report


def observe(
    exercise: Exercise,
    function: Callable,
    cases: Sequence[Case],
    show: bool = False,
    compile: bool = True,
    arch: int = compile_gate.ARCH,
):
    """Run the cases until one leaves no hope; returns the observations and the compilations that run meanwhile.

    Half precision comes first: its kernel compiles in a third of the time of fp32's, and is what a GPU would run.
    """
    observations, pending = [], []
    for case in sorted(cases, key=_half_first):
        outcome = run(function, exercise.call(case), show=show)
        observations.append(Observation(case, judge(exercise, case), outcome))
        if compile and not pending and outcome.launches:
            distinct = compile_gate.distinct(outcome.launches)
            pending = [compile_gate.start(launch, arch, listing=True) for launch in distinct]
        if _hopeless(outcome):
            break
    return sorted(observations, key=lambda o: cases.index(o.case)), pending


def conclude(
    exercise: Exercise,
    observations,
    pending,
    again: Callable[..., Outcome],
    public: bool = True,
    target: Target = Target(),  # noqa: B008  frozen
) -> Report:
    """The report of an exercise from what its cases gave; ``again`` runs one more case of the same function."""
    wrong = [o for o in observations if not o.right]
    problem = next((o.outcome.problem for o in wrong if o.outcome.problem), None)
    diagnosis, place = Diagnosis(), ""
    if wrong and _may_be_named(wrong):
        diagnosis = diagnose(exercise, observations, lambda case: again(case, undefined=None))
        place = where(exercise, observations, again, judge)
    compiled = [p.result(COMPILE_SECONDS) for p in pending]
    broken = next((c for c in compiled if c.kind in ("refused", "crashed")), None)
    rows = bytes_requested(exercise, observations)
    first = min((o.case for o in observations), key=_half_first, default=None)  # the case whose kernel was compiled
    parts = {
        "right": not wrong if observations else None,
        "bytes": all(row.within for row in rows),
        "compiles": _compiles(compiled),
    }
    lacking = made_of.judged(exercise.made_of, compiled)
    parts["code"] = False if broken else None if lacking is None else not lacking
    ignored = None if wrong else launch_options.ignored(exercise, observations)
    parts["launch"] = None if ignored is None else not ignored
    return Report(
        exercise=exercise,
        observations=observations,
        verdict=_verdict(wrong, problem, broken) if observations or broken else "not judged",
        problem=problem,
        diagnosis=diagnosis,
        place=place,
        bytes=rows,
        compiled=compiled,
        cost=None if wrong or exercise.needs_gpu else cost(exercise, first, compiled, target),
        code=[made_of.told(exercise.made_of, compiled)] if lacking == [] else lacking or [],
        ignored=ignored or [],
        compile_problem=from_explanation("will not compile", explain_compile(broken)) if broken else None,
        parts=parts,
        points=points(exercise.points, parts, exercise.shares),
        public=public,
    )


def check_time(id: str, function: Callable) -> TimeReport:
    """The grade cell ``<id>.gpu``: judged on a GPU where Triton compiles; elsewhere pending, and why."""
    exercise = find(id)
    if exercise.gluon and not gluon.runs_on(here()):
        return TimeReport(exercise, why=gluon.ELSEWHERE)
    if exercise.cuda is None:
        judged = exercise.gpu is not None and exercise.gpu_points and here().gpu and not interpreting()
        return time_on_gpu(exercise, function, here()) if judged else TimeReport(exercise)
    observations, _, done = cuda.observe(exercise, function, exercise.cases, show=False)
    if done is None:
        return TimeReport(exercise)
    return cuda.time_report(exercise, observations, done)


def hint(id: str, number: int = 1) -> None:
    """Print hint 1, 2 or 3 of an exercise. Hints cost nothing."""
    hints = find(id).hints
    if number not in range(1, len(hints) + 1):
        raise ValueError(f"{id} has hints 1 to {len(hints)}, not {number!r}")
    more = f'  (next: hint("{id}", {number + 1}))' if number < len(hints) else ""
    print(f"Hint {number} of {len(hints)} for {id}: {hints[number - 1]}{more}")


def find(id: str) -> Exercise:
    """The exercise with this id; ValueError with the nearest known id otherwise."""
    if id in exercises.EXERCISES:
        return exercises.EXERCISES[id]
    near = difflib.get_close_matches(str(id), exercises.EXERCISES, 1, 0)
    known = ", ".join(exercises.EXERCISES)
    raise ValueError(f"There is no exercise {id!r}. Did you mean {near[0]!r}? Known: {known}.")


def _half_first(case: Case) -> bool:
    return case.dtype != "fp16"


def _hopeless(outcome: Outcome) -> bool:
    """Stop after a call that the next case would only repeat: a hang, an exception, a refusal."""
    problem = outcome.problem
    return problem is not None and problem.finding is None and problem.verdict in ("crashed", "refused")


def _may_be_named(wrong: list[Observation]) -> bool:
    """A case without outputs can be explained only if it crashed, and if another one shows what the kernel computes."""
    silent = [o for o in wrong if o.outcome.problem and o.outcome.problem.finding is None]
    return not silent or (all(o.crashed for o in silent) and any(o.outcome.problem is None for o in wrong))


def _arch(exercise: Exercise, target: Target) -> int:
    """What made-for-Hopper code is compiled for is not this machine's to say."""
    return gluon.HOPPER if exercise.made_of else target.arch


def _compiles(compiled) -> bool | None:
    """None where it could not be judged."""
    if not compiled or any(c.kind in ("unavailable", "timeout") for c in compiled):
        return None
    return all(c.ok for c in compiled)


def _verdict(wrong, problem: Problem | None, broken) -> str:
    if problem is not None and problem.verdict in ("crashed", "refused"):
        return problem.verdict
    if wrong:
        return "wrong"
    return "will not compile" if broken else "right"
