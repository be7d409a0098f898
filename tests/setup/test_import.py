"""`import flashkit`: interpreter on without a GPU, a refusal when triton came first, one sentence without triton."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
NO_TRITON = """
import importlib.machinery
find = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = lambda name, *a: None if name.split('.')[0] == 'triton' else find(name, *a)
"""
ONLY = """
import sys
class Only:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {blocked}:
            raise ModuleNotFoundError('No module named ' + repr(name), name=name)
sys.meta_path.insert(0, Only())
"""
needs_no_gpu = pytest.mark.skipif(
    torch.cuda.is_available(), reason="not run here: this is about machines without a GPU"
)


def python(code, **environment):
    """Runs code in a new interpreter without TRITON_INTERPRET: (exit status, stdout, last line of stderr)."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.strip(), (done.stderr.strip().splitlines() or [""])[-1]


@needs_no_gpu
def test_without_a_gpu_kernels_are_interpreted():
    code = "import flashkit, triton\n@triton.jit\ndef k(): pass\nprint(type(k).__name__)"
    assert python(code) == (0, "InterpretedFunction", "")


def test_flashkit_itself_does_not_import_triton():
    assert python("import flashkit, sys; print('triton' in sys.modules)") == (0, "False", "")


@needs_no_gpu
def test_triton_first_is_refused_with_the_cure():
    status, _, said = python("import triton\nimport flashkit")
    assert status
    assert "triton was imported before flashkit" in said and "make `import flashkit` the first line" in said


@needs_no_gpu
def test_triton_first_with_the_interpreter_on_is_fine():
    assert python("import triton, flashkit; print('fine')", TRITON_INTERPRET="1") == (0, "fine", "")


def test_on_a_gpu_the_choice_is_left_to_the_process():
    code = "import torch; torch.cuda.is_available = lambda: True\n"
    code += "import flashkit, os; print(os.environ.get('TRITON_INTERPRET'))"
    assert python(code) == (0, "None", "")


def test_without_triton_flashkit_imports_and_a_kernel_cell_says_what_it_needs():
    assert python(NO_TRITON + "import flashkit; print('fine')") == (0, "fine", "")
    status, _, said = python(NO_TRITON + "import flashkit\nimport triton")
    assert status
    assert said.startswith("ModuleNotFoundError: Triton has wheels for Linux only") and "WSL2" in said


def test_only_numpy_torch_and_triton_are_needed():
    blocked = {
        "jupyterlab",
        "ipykernel",
        "IPython",
        "matplotlib",
        "anywidget",
        "nbgrader",
        "nbformat",
        "nbclient",
        "reference",
    }
    assert python(ONLY.format(blocked=blocked) + "import flashkit, flashkit.environment; print('fine')") == (
        0,
        "fine",
        "",
    )


def test_an_unknown_name_is_an_attribute_error():
    status, _, said = python("import flashkit; flashkit.chek")
    assert status and said == "AttributeError: module 'flashkit' has no attribute 'chek'"
