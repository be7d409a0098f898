"""python -m reference.lab: every option in a process of its own, broken runs, and bad arguments."""

import subprocess
import sys
from pathlib import Path

import pytest

from reference import lab

ROOT = Path(__file__).parents[2]


def run(*arguments, python=("-m", "reference.lab")):
    return subprocess.run([sys.executable, *python, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)


def failed_rows(out):
    return tuple(line[:14].strip() for line in out.splitlines() if line.endswith("  FAIL"))


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--length 7 --block 3",
        "--length 7 --block 1",
        "--length 7 --block 8",
        "--length 5",
        "--length 5 --block 4 --causal",
        "--length 1",
        "--length 11 --dim 3 --seed 12345",
    ],
)
def test_passes(arguments):
    done = run(*arguments.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "PASS" and failed_rows(done.stdout) == ()
    assert all(f"\n{name} " in done.stdout for name in lab.EVERY_CHECK)


@pytest.mark.parametrize("fault", ["alpha", "scale", "causal"])
@pytest.mark.parametrize("more", [[], ["--length", "5", "--block", "1", "--causal"]])
def test_break_fails_the_predicted_checks(fault, more):
    done = run("--break", fault, *more)
    assert (done.returncode, done.stderr) == (1, "")
    assert failed_rows(done.stdout) == lab.BREAKS[fault].fails
    assert "\nFAIL as expected: " in done.stdout and "expected to fail: " in done.stdout


def test_without_alpha_lse_and_dV_stay_right():
    assert set(lab.EVERY_CHECK) - set(lab.BREAKS["alpha"].fails) == {"lse", "dV"}


def test_an_error_that_is_not_a_number_fails():
    assert not lab.Check("O", "dense", float("nan"), 1.0).passes


@pytest.mark.parametrize("arguments", ["--break alpha --block 8", "--break scale --dim 1"])
def test_a_break_without_effect_says_why(arguments):
    done = run(*arguments.split())
    assert done.returncode == 0 and "PASS: the break changed nothing here: " in done.stdout.splitlines()[-1]


def test_a_break_that_fails_fewer_checks_says_so():
    """With one key the softmax is 1 at any temperature: only lse and what is rebuilt from it can differ."""
    done = run("--break", "scale", "--length", "1")
    assert done.returncode == 1 and done.stdout.splitlines()[-1].startswith("FAIL, but not as expected: failed lse; ")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--length", "0"], "--length: needs a whole number from 1 to 64, but got '0'"),
        (["--length", "65"], "--length"),
        (["--length", "seven"], "--length"),
        (["--length", "2.5"], "--length"),
        (["--length"], "--length: expected one argument"),
        (["--block", "-3"], "--block"),
        (["--dim", "0"], "--dim"),
        (["--seed", "-1"], "--seed: needs a whole number of at least 0, but got '-1'"),
        (["--break", "beta"], "--break"),
        (["--break"], "--break"),
        (["--lengths", "7"], "--lengths"),
        (["7"], "7"),
        (["two\nlines"], "two lines"),
    ],
)
def test_bad_arguments_get_one_line_and_status_2(arguments, named):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("reference.lab: ") and named in done.stderr


def test_help_names_every_option():
    done = run("--help")
    assert done.returncode == 0
    assert all(f"--{name}" in done.stdout for name in ("length", "block", "dim", "causal", "seed", "break"))


def test_reference_needs_only_numpy():
    code = """
import sys
sys.modules.update(dict.fromkeys(("torch", "triton", "flashkit", "matplotlib", "scipy"), None))
import reference.backward, reference.forward, reference.lab, reference.online_softmax, reference.shapes
"""
    done = run(python=("-c", code))
    assert (done.returncode, done.stderr) == (0, "")
