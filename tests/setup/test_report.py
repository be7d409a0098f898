"""The capability table: what a machine can judge, said once for checks and readers; it never fails."""

import re
from pathlib import Path

import pytest

import flashkit
from flashkit import environment
from flashkit.environment import Machine, capabilities

LAPTOP = Machine("Linux", "3.7.1", None, None)
MAC = Machine("Darwin", None, None, None)
AMPERE = Machine("Linux", "3.7.1", "NVIDIA A100", (8, 0))
HOPPER = Machine("Linux", "3.6.0", "NVIDIA H200", (9, 0))
TURING = Machine("Linux", "3.7.1", "Tesla T4", (7, 5))
BLACKWELL = Machine("Linux", "3.7.1", "NVIDIA B200", (10, 0))


@pytest.mark.parametrize(
    ("machine", "judged"),
    [
        (LAPTOP, {"answers", "traffic", "compile"}),
        (MAC, set()),
        (TURING, {"answers", "traffic", "compile"}),
        (AMPERE, {"answers", "traffic", "compile", "bf16", "time"}),
        (BLACKWELL, {"answers", "traffic", "compile", "bf16", "time"}),
        (HOPPER, {"answers", "traffic", "compile", "bf16", "time", "hopper"}),
    ],
)
def test_what_each_machine_judges(machine, judged):
    assert {name for name, row in capabilities(machine).items() if row.judged} == judged


def test_what_is_not_judged_says_what_it_takes():
    assert "GPU" in capabilities(LAPTOP)["bf16"].how
    assert all("Linux only" in row.how or "GPU" in row.how for row in capabilities(MAC).values())


def test_the_compile_target_is_this_gpu_or_hopper():
    assert "sm_80" in capabilities(AMPERE)["compile"].how
    assert "sm_90" in capabilities(LAPTOP)["compile"].how


def versions(monkeypatch, **installed):
    monkeypatch.setattr(environment, "version_of", lambda package: {**environment.PINS, **installed}.get(package))


def test_old_triton_with_new_numpy_is_warned_about(monkeypatch):
    versions(monkeypatch, triton="3.6.0", numpy="2.4.6")
    assert any("pip install 'numpy<2.4'" in sentence for sentence in environment.warnings())
    versions(monkeypatch, triton="3.6.0", numpy="2.3.5")
    assert not any("numpy<2.4" in sentence for sentence in environment.warnings())


def test_the_pinned_set_gives_no_warning(monkeypatch):
    versions(monkeypatch, torch="2.13.0+cpu")
    assert environment.warnings() == []


def test_other_versions_are_named(monkeypatch):
    versions(monkeypatch, torch="2.11.0+cu130")
    assert environment.warnings() == ["torch 2.11.0+cu130 is not the pinned 2.13.0: say so when you report a surprise"]


@pytest.mark.parametrize("version", ["3.8.0.dev20260101+git123", "main", ""])
def test_odd_versions_do_not_break_the_report(monkeypatch, version):
    versions(monkeypatch, triton=version, numpy=None)
    assert "numpy missing" in environment.report()


def test_a_broken_driver_reads_as_no_gpu(monkeypatch):
    import torch

    def broken():
        raise RuntimeError("driver")

    monkeypatch.setattr(torch.cuda, "is_available", broken)
    assert environment.machine().gpu is None


def test_the_report_is_one_short_block():
    lines = environment.report().splitlines()
    assert lines[0].startswith("flashkit ") and len(lines) < 15
    assert max(map(len, lines)) < 130
    for row in environment.capabilities().values():
        assert any(f" {row.what}  " in line for line in lines), "a column must not run into the next one"


def test_the_section_of_the_readme_that_a_refusal_names_is_there():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for refusal in (capabilities(MAC)["answers"].how, flashkit.NEEDS_TRITON):
        assert f"## {re.search(r'README, ([^)]+)', refusal)[1]}\n" in readme
