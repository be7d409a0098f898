"""CUDA C++ compiled with no GPU: registers and spills told, errors with the student's line, nothing blamed on them
that is the machine's."""

import subprocess
import sys

import pytest

from flashkit.instruments import cuda_gate

pytest.importorskip("cuda.core", reason="cuda-core is not installed")

SOURCE = r"""
extern "C" __global__ void largest(const float *x, float *y, int columns, long long stride_x, long long stride_y) {
    float m = -INFINITY;
    for (int column = threadIdx.x; column < columns; column += blockDim.x) {
        m = fmaxf(m, x[blockIdx.x * stride_x + column]);
    }
    for (int step = 16; step > 0; step /= 2) {
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, step));
    }
    y[blockIdx.x * stride_y] = expf(m);
}
"""


def answer():
    return SOURCE, 32


def compiled(text, arch="90a", kernel="largest", function=None):
    return cuda_gate.start(text, kernel, arch, function).result(60)


@pytest.mark.parametrize("arch", ["90a", "80"])
def test_a_kernel_compiles_without_a_gpu_and_its_registers_are_told(arch):
    result = compiled(SOURCE, arch)
    assert result.ok and result.arch == arch, result.message
    assert 8 <= result.registers <= 64 and result.spills == 0


def test_spills_are_told():
    many = ", ".join(f"v{n}" for n in range(300))
    loads = "".join(f"v{n} = x[{n} * columns];" for n in range(300))
    sums = " + ".join(f"v{n} * v{(n * 7 + 1) % 300}" for n in range(300))
    text = (
        f'extern "C" __global__ void largest(const float *x, volatile float *y, int columns) {{ float {many}; {loads}'
    )
    text += f" __syncthreads(); y[0] = {sums}; __syncthreads(); y[1] = {sums.replace('*', '-')}; }}"
    assert compiled(text).spills > 0


@pytest.mark.parametrize(
    ("old", "new", "lineno", "said"),
    [
        ("expf(m)", "exqf(m)", 10, 'identifier "exqf" is undefined'),
        ("-INFINITY;", "-INFINITY", 4, 'expected a ";"'),
        ("0xffffffffu, m, step", "m, step", 8, "__shfl_xor_sync"),
        ("{\n    float", "{\n#include <cuda_fp16.h>\n    float", 3, 'could not open source file "cuda_fp16.h"'),
    ],
)
def test_an_error_has_its_line_in_the_text(old, new, lineno, said):
    result = compiled(SOURCE.replace(old, new))
    assert (result.kind, result.error, result.lineno) == ("refused", "NvrtcError", lineno)
    assert said in result.message and result.where == cuda_gate.TEXT


def test_a_text_that_stands_in_a_file_is_counted_there():
    source = cuda_gate.source_of(SOURCE, "largest", answer)
    line = source.locate(3)
    assert line.where == "test_cuda_gate.py" and "float m = -INFINITY" in line.text
    with open(__file__) as file:
        assert file.read().splitlines()[line.lineno - 1] == line.text


@pytest.mark.parametrize("text", ["", SOURCE.replace("largest", "other"), SOURCE.replace('extern "C" ', "")])
def test_a_text_without_the_kernel_is_told_so(text):
    result = compiled(text)
    assert (result.kind, result.error) == ("refused", "NoKernel") and "largest" in result.message


def test_a_machine_without_the_compiler_blames_nobody(tmp_path):
    """The child without site-packages has neither cuda-core nor Triton."""
    (tmp_path / "module.py").write_text(SOURCE)
    (tmp_path / "request.json").write_text('{"kernel": "largest", "arch": "90a", "cpu_seconds": 60}')
    command = [sys.executable, "-I", "-S", str(cuda_gate.CHILD), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert '"error": "ImportError"' in done.stdout  # which the gate reads as "unavailable"
