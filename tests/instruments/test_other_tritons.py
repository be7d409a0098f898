"""Meter, compile gate and resources on every Triton that the course promises to work with: one venv each.

A venv here holds Triton alone, and numpy where that Triton needs an older one; everything else, torch above all, it
takes from the environment that runs the tests. Nothing else may differ: the pinned torch imports Triton by name, when a
kernel is first made, and asks for no version. Four whole venvs would be 8 GB on disk, these are under 3.
"""

import os
import site
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".tritons"  # ignored by git; made once
VERSIONS = {  # what is installed; the pinned version needs nothing
    "3.6.0": ["triton==3.6.0", "numpy<2.4"],  # its interpreter takes no newer numpy
    "3.7.1": ["triton==3.7.1"],
    "3.8.0": ["triton==3.8.0"],
    "3.9.0": ["triton==3.9.0"],
}
TESTED = [f"tests/instruments/test_{name}.py" for name in ("meter", "compile_gate", "resources", "listing")]
ASIDE = "not cuda_text"  # CUDA C++ has no Triton in it, and its compiler's library is looked for beside Python
SECONDS = 1200
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(SECONDS + 600)]


def python_with(triton: str) -> Path:
    """The Python of a venv with this Triton; made on first use. Raises CalledProcessError where pip cannot."""
    if version("triton") == triton:
        return Path(sys.executable)
    folder = FOLDER / triton
    python, done = folder / "bin" / "python", folder / "made-of"
    wanted = " ".join([sys.prefix, *VERSIONS[triton]])
    if not done.exists() or done.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
        (own,) = folder.glob("lib/python*/site-packages")
        install = ["pip", "--python", str(python), "install", "-q", "--no-deps", "--no-compile", *VERSIONS[triton]]
        subprocess.run([sys.executable, "-m", *install], check=True, timeout=600)
        shared = "; ".join(f"site.addsitedir({path!r})" for path in site.getsitepackages())
        (own / "shared.pth").write_text(f"import site; {shared}\n")  # after its own packages, which come first
        done.write_text(wanted)
    return python


@pytest.mark.parametrize("triton", VERSIONS)
def test_instruments_on_triton(triton, tmp_path):
    try:
        python = python_with(triton)
    except (subprocess.SubprocessError, OSError) as error:
        told = f"triton {triton} could not be installed ({type(error).__name__})"
        pytest.fail(told) if os.environ.get("REQUIRE_ALL") == "1" else pytest.skip(f"not run here: {told}")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PYTHONPATH"))}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    told = subprocess.run([python, "-c", "import triton; print(triton.__version__)"], capture_output=True, text=True)
    assert told.stdout.strip() == triton
    command = [python, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "-k", ASIDE, *TESTED]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS)
    print(done.stdout[-3000:], done.stderr[-1000:])
    assert done.returncode == 0 and " passed" in done.stdout
