"""Launch choices: what holds, what does not, and what cannot be judged; with a stand-in for the compilers."""

from dataclasses import dataclass, field, replace

import pytest

import flashkit  # noqa: F401  comes before triton
from flashkit import exercises
from flashkit.check import check, choices, grid, sweep
from flashkit.check.choices import Launched, candidate_of, judge
from flashkit.instruments.listing import Listing, Mix
from flashkit.instruments.record import Argument, Launch
from flashkit.instruments.resources import ARCHITECTURES, Resources
from tests.labs.kernels import load

TUNED = exercises.get("05.tuned")
TUNING = TUNED.tuning
GOOD, SLOW = (128, 128, 8, 3), (64, 64, 8, 2)
SAID = "at 9:4:\n  said why\n    ^\n"  # as Triton says it


@dataclass(frozen=True)
class Kernel:
    """A kernel that "compiles" to what its options say."""

    constants: dict
    options: dict = field(default_factory=dict)
    kind: str = "ok"
    spills: int = 0
    work: float = 1.0  # of the matrix work that its tile needs
    exps: float = 1.0  # of the exponentials
    cycles: int = 500

    def relaunched(self, candidate):
        block_q, block_k, warps, stages = candidate
        constants = {**self.constants, "block_q": block_q, "block_k": block_k}
        return replace(self, constants=constants, options={"num_warps": warps, "num_stages": stages})


def kernel(candidate, **rest):
    return Kernel({}, **rest).relaunched(candidate)


def compiler(asked):
    for k, arch in asked:
        block_q, block_k, warps, _ = candidate_of(k)
        matrix = k.work * 4 * block_q * block_k * 128 / warps
        special = int(k.exps * block_q * block_k) // (32 * warps)
        loop = Mix(issued=900, cycles=k.cycles, special=special, matrix=matrix, barriers=2)
        listing = Listing(Mix(issued=1500, cycles=k.cycles + 500), [loop])
        yield Resources("k", arch, k.kind, 200, k.spills, 90 * 1024, 0, 32 * warps, listing, SAID)


def one(kernel, arch=90, tuning=TUNING):
    (choice,) = judge(tuning, {arch: [kernel]}, compiler)
    return choice


def least(seconds):
    return replace(TUNING, least=dict.fromkeys(ARCHITECTURES, seconds))


FAST, HOPELESS = least(1.0), least(1e-9)


def test_a_choice_within_the_slack_holds():
    choice = one(kernel(GOOD), tuning=FAST)
    assert choice.holds and choice.seconds and "least 1000.000 ms" in choice.why and choice.part == "sm_90"
    assert str(choice).startswith("✓ sm_90 H200: 128 x 128, 8 warps, 3 stages: 200 registers, no spills")


@pytest.mark.parametrize(
    "changes, said", [({"spills": 8}, "8 B of them spilled"), ({"kind": "refused"}, "does not compile: said why")]
)
def test_spills_and_what_does_not_compile_do_not_hold(changes, said):
    choice = one(kernel(GOOD, **changes), tuning=FAST)
    assert choice.holds is False and said in choice.why


def test_a_slow_choice_is_compared_with_the_same_kernel_under_a_better_one():
    good, slow = one(kernel(GOOD), tuning=HOPELESS), one(kernel(SLOW), tuning=HOPELESS)
    assert good.holds and "would give your kernel" in good.why  # the shortlist's first is this very choice
    assert slow.holds is False and "with another choice of the grid" in slow.why


def test_a_slow_kernel_is_no_reason_to_refuse_its_choice():
    assert one(kernel(GOOD, cycles=5000), tuning=HOPELESS).holds


def test_a_kernel_that_fits_no_choice_of_the_shortlist_is_not_slowed_by_its_own():
    def picky(asked):
        rows = list(compiler(asked))
        taken = [candidate_of(k) for k, _ in asked]
        return iter([replace(r, spills=0 if c == SLOW else 4) for r, c in zip(rows, taken, strict=True)])

    (choice,) = judge(HOPELESS, {90: [kernel(SLOW)]}, picky)
    assert choice.holds and choice.why.endswith("for another kernel")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "refused", "shared": None}, "does not compile: said why"),  # tl.static_assert(block_q == 64)
        ({"listing": Listing(Mix(issued=9), [])}, "no loop over key tiles"),  # if block_q > 64: return
    ],
)
def test_a_kernel_that_refuses_every_other_tile_is_not_compared(change, said):
    def picky(asked):
        for row, (k, _) in zip(compiler(asked), asked, strict=True):
            yield row if candidate_of(k) == SLOW else replace(row, **change)

    (choice,) = judge(HOPELESS, {90: [kernel(SLOW)]}, picky)
    assert choice.holds is None and "not compared with 64 x 32, 4 warps, 2 stages" in choice.why and said in choice.why


@pytest.mark.parametrize("kind", ("timeout", "unavailable"))
def test_without_a_compiler_nothing_is_judged(kind):
    assert one(kernel(GOOD, kind=kind)).holds is None

    def dies(asked):
        for row, (k, _) in zip(compiler(asked), asked, strict=True):
            yield replace(row, kind="ok" if candidate_of(k) == SLOW else kind)

    (choice,) = judge(HOPELESS, {90: [kernel(SLOW)]}, dies)
    assert choice.holds is None and "not compared with" in choice.why


@pytest.mark.parametrize(
    "kernels, said",
    [
        ([], "0 kernels"),
        ([kernel(GOOD)] * 2, "2 kernels"),
        ([Kernel({"rows": 64, "keys": 64})], "no tl.constexpr parameters block_q and block_k"),
        ([Kernel({"block_q": 64, "BLOCK_M": 64, "block_k": 64})], "no tl.constexpr"),
        ([Kernel({"block_q": None, "block_k": 64})], "no tl.constexpr"),
        ([kernel(GOOD, work=0.25)], "less matrix work"),
        ([kernel(GOOD, work=0)], "too few instructions for the products"),
        ([kernel(GOOD, exps=0)], "fewer exponentials"),
    ],
)
def test_what_cannot_be_read_is_not_judged(kernels, said):
    (choice,) = judge(FAST, {90: kernels}, compiler)
    assert choice.holds is None and said in choice.why


def test_the_usual_names_of_tiles_are_known_and_defaults_are_tritons():
    assert candidate_of(Kernel({"BLOCK_M": 128, "BLOCK_N": 64, "d": 128})) == (128, 64, 4, 3)
    launch = Launch(None, "k", {n: Argument("constexpr", 64) for n in ("BLOCK_M", "BLOCK_N")}, {})
    again = Launched(launch).relaunched(GOOD)
    assert candidate_of(again) == GOOD and set(again.constants) == {"BLOCK_M", "BLOCK_N"}


def test_the_shortlists_are_of_the_grid_and_every_architecture_has_its_share():
    assert set(TUNING.least) == set(TUNING.shortlist) == set(ARCHITECTURES)
    assert {c for shortlist in TUNING.shortlist.values() for c in shortlist} <= set(TUNING.candidates)
    assert set(TUNED.shares) == {f"sm_{arch}" for arch in ARCHITECTURES}
    assert sum(TUNED.shares.values()) == pytest.approx(1)
    assert [case.options["arch"] for case in TUNED.cases] == list(ARCHITECTURES)


# ---- the whole check


def tuned(table):
    forward = load("05.forward", "solution")
    return lambda q, k, v, arch, choice=None: forward(q, k, v, *(choice or table[arch]))


def as_given(asked):
    """Launches of this process as the stand-in's kernels."""
    return [(Kernel(k.constants, k.options), arch) for k, arch in asked]


@pytest.fixture
def stand_in(monkeypatch):
    """Compilers that take every tile, and are missing for sm_100."""

    def compile_launched(asked):
        for (_, arch), row in zip(asked, compiler(as_given(asked)), strict=True):
            yield replace(row, kind="unavailable" if arch == 100 else "ok")

    monkeypatch.setattr(
        "flashkit.check.choice_report.judge", lambda tuning, launched, _, show: judge(FAST, launched, compile_launched)
    )


def test_points_are_an_architectures_and_what_is_not_judged_is_pending(stand_in):
    report = check("05.tuned", tuned(dict.fromkeys(ARCHITECTURES, (64, 64, 4, 2))))
    assert (report.verdict, report.points, report.out_of) == ("right", 25.0, 30.0)
    assert report.pending == ["sm_100 (its choice)", "time on a GPU"]
    assert repr(report) == str(report)
    assert "5 of 6 choices hold" in str(report) and "? sm_100 B200" in str(report) and "sm_80" in report._repr_html_()


def test_wrong_answers_and_missing_entries_have_no_choices(stand_in):
    forward = load("05.forward", "solution", (("d**-0.5", "1.0"),))
    wrong = check("05.tuned", lambda q, k, v, arch, choice=None: forward(q, k, v, 64, 64, 4, 2))
    assert (wrong.verdict, wrong.points, wrong.choices) == ("wrong", 0.0, [])
    missing = check("05.tuned", tuned({80: (64, 64, 4, 2)}))
    assert missing.points == 0.0 and "There is no entry 86" in str(missing)


def test_a_sweep_is_a_table_fastest_first(monkeypatch):
    def compile_launched(asked):
        for row, (k, _) in zip(compiler(as_given(asked)), asked, strict=True):
            yield replace(row, spills=9 if candidate_of(k)[2] == 4 else 0)

    monkeypatch.setattr(grid, "compile_launched", compile_launched)
    asked = [(64, 64, 4, 2), (64, 64, 8, 2), (128, 128, 8, 2)]
    table = sweep(load("05.forward", "solution"), 90, asked)
    assert [row.candidate for row in table][-1] == (64, 64, 4, 2) and table[-1].seconds is None
    assert table[0].seconds <= table[1].seconds and "out" in str(table) and "9 B" in table._repr_html_()


def test_a_sweep_says_what_it_wants():
    with pytest.raises(ValueError, match="arch must be one of 80, 86"):
        sweep(load("05.forward", "solution"), 75)
    with pytest.raises(ValueError, match="one kernel, but 0"):
        sweep(lambda q, k, v, *choice: q, 90, [GOOD])
    with pytest.raises(NotImplementedError):
        sweep(_blank, 90, [GOOD])


def _blank(q, k, v, block_q, block_k, warps, stages):
    raise NotImplementedError()


# ---- the real compilers


@pytest.mark.slow
@pytest.mark.parametrize("arch", (80, 90, 100, 120))  # 86 and 89 compile alike, and nearly as 120
def test_the_least_times_are_those_of_the_grid(arch):
    table = sweep(load("05.forward", "solution"), arch)
    assert table[0].seconds == pytest.approx(TUNING.least[arch], rel=0.05), str(table)
    within = [row.candidate for row in table if row.seconds and row.seconds <= 1.05 * table[0].seconds]
    assert TUNING.shortlist[arch][0] in within, str(table)


@pytest.mark.slow
def test_another_right_kernels_own_best_choice_holds():
    """Whatever the course's kernel reaches."""
    forward = load("05.forward", "05_forward__base_2")
    best = sweep(forward, 90)[0].candidate
    assert judge(TUNING, {90: [grid._launched(TUNING, forward, best)]})[0].holds, best


def test_a_sweeps_launch_holds_the_candidate():
    launched = grid._launched(TUNING, load("05.forward", "solution"), GOOD)
    assert candidate_of(launched) == GOOD
    assert choices.told(GOOD) == "128 x 128, 8 warps, 3 stages"
