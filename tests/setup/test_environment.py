"""pyproject.toml, constraints.txt, environment.yml and flashkit's own pins say the same."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from flashkit import environment

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKED = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
CONDA_PIP = next(item["pip"] for item in CONDA if isinstance(item, dict))
PINS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]


def by_name(requirements):
    return {canonicalize_name(Requirement(line).name): Requirement(line).specifier for line in requirements}


def conda_requirements():
    lines = [item for item in CONDA if isinstance(item, str) and item != "pip"]
    return by_name([*lines, *(line for line in CONDA_PIP if not line.startswith("-"))])


def test_conda_asks_for_what_pip_asks_for():
    conda = conda_requirements()
    assert str(conda.pop("python")) == str(Requirement(f"python{PROJECT['requires-python']}").specifier)
    assert conda == by_name(ASKED)


def test_torch_and_triton_come_from_pip_in_the_conda_twin():
    assert {"torch", "triton"} <= by_name(line for line in CONDA_PIP if not line.startswith("-")).keys()
    assert "-e ." in CONDA_PIP


def test_every_requirement_is_pinned_to_a_version_it_allows():
    pins = {name: str(specifier).removeprefix("==") for name, specifier in by_name(PINS).items()}
    for name, specifier in by_name(ASKED).items():
        assert specifier.contains(pins[name]), f"{name}{specifier} against {pins[name]}"


def test_pins_are_exact_and_name_no_machine():
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*", line) for line in PINS)


def test_the_pins_that_flashkit_compares_with_are_those_of_constraints():
    pins = by_name(PINS)
    assert {name: str(pins[name]) for name in environment.PINS} == {
        name: f"=={version}" for name, version in environment.PINS.items()
    }


@pytest.mark.parametrize("extra", PROJECT["optional-dependencies"])
def test_make_venv_installs_every_extra(extra):
    from tools import setup_venv

    assert extra in setup_venv.EXTRAS.split(",")
