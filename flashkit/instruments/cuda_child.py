"""The CUDA gate's child: compiles CUDA C++ text with NVRTC, and on a GPU launches it; JSON on stdout.

Started as ``python -I cuda_child.py FOLDER``. FOLDER holds module.py (the CUDA text), request.json and, for launches,
tensors.npz; results of launches are left in outputs.npz. Nothing of flashkit is imported here.
"""

import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import time

INFINITY = "__int_as_float(0x7f800000)"
NAME = "kernel.cu"  # what NVRTC calls the text in its messages
GUARD = 4096  # elements around each tensor
UNTOUCHED = -12345.0  # what lies around y before a launch: no softmax gives it
WARM, TIMED = 5, 30
AHEAD = 2_000_000  # cycles that the GPU waits before each timed launch, so that Python's part lies before the window
LAUNCH_SECONDS = 30  # for torch's start, all cases and the timing; a kernel that hangs is ended with the process


def main(folder: str) -> None:
    answer_to = os.dup(1)
    os.dup2(2, 1)  # what the compiler prints must not mix with the answer
    os.chdir(folder)
    with open("request.json") as file:
        request = json.load(file)
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_seconds"], request["cpu_seconds"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(LAUNCH_SECONDS if "launches" in request else 2 * request["cpu_seconds"])
    with open("module.py") as file:
        text = file.read()
    try:
        answer = launch_all(text, request) if "launches" in request else compile_text(text, request)
    except Refused as refusal:
        answer = refusal.answer
    except ImportError as error:
        answer = failed("ImportError", str(error))
    except Exception as error:  # no NVRTC, no driver, or a launch that ended the CUDA context
        answer = failed(
            "LaunchError" if "launches" in request else "OSError", f"{type(error).__name__}: {error}".splitlines()[0]
        )
    os.write(answer_to, json.dumps(answer).encode())


def failed(error: str, message: str, lineno: int = 0, log: str = "") -> dict:
    return {"ok": False, "error": error, "message": message, "lineno": lineno, "traceback": log or message}


class Refused(Exception):
    """The compiler's answer when it does not take the text."""

    def __init__(self, answer: dict):
        super().__init__(answer["message"])
        self.answer = answer


def compiled(text: str, arch: str):
    """The text as a cuda.core ObjectCode with a cubin. Raises Refused with NVRTC's first error and its line."""
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(
        name=NAME, arch=f"sm_{arch}", std="c++17", use_fast_math=False, define_macro=("INFINITY", INFINITY)
    )
    try:
        return Program(text, "c++", options).compile("cubin", name_expressions=())
    except Exception as error:
        log = str(error)
        first = re.search(rf"{re.escape(NAME)}\((\d+)\): (?:catastrophic )?error: (.*)", log)
        if first is None and "NVRTC_ERROR_COMPILATION" in log:
            raise Refused(failed("NvrtcError", log.strip().splitlines()[-1], 0, log)) from None
        if first is None:
            raise
        raise Refused(failed("NvrtcError", first[2].strip(), int(first[1]), log)) from None


def ptx_of(text: str, arch: str) -> bytes:
    """PTX of a text that is known to compile; cuda.core would ask a driver first, which is not here."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(text.encode(), NAME.encode(), 0, [], [])
    options = [f"--gpu-architecture=compute_{arch}".encode(), b"--std=c++17", f"-DINFINITY={INFINITY}".encode()]
    nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = b" " * size
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.rstrip(b"\0 ")


def compile_text(text: str, request: dict) -> dict:
    """Compiles for one architecture: registers and local memory a thread, static shared memory a block."""
    start = time.perf_counter()
    code = compiled(text, request["arch"]).code
    seconds = time.perf_counter() - start
    if request.get("listing"):
        with open("kernel.ptx", "wb") as file:
            file.write(ptx_of(text, request["arch"]))
    found = usage(code, request["kernel"])
    if found is None:
        message = f'the text has no function {request["kernel"]} marked extern "C" __global__'
        return failed("NoKernel", message)
    return {"ok": True, "seconds": seconds, **found}


def usage(cubin: bytes, kernel: str) -> dict | None:
    """What cuobjdump -res-usage tells of the kernel: {} when it cannot run, None when there is no such kernel."""
    with open("kernel.cubin", "wb") as file:
        file.write(cubin)
    try:
        command = [cuobjdump(), "-res-usage", "kernel.cubin"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
    except (ImportError, OSError, subprocess.SubprocessError):
        return {}
    of_kernel = re.search(rf"Function {re.escape(kernel)}:\s*(.*)", said)
    if of_kernel is None:
        return None
    found = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|LOCAL|SHARED):(\d+)", of_kernel[1])}
    return {
        "registers": found["REG"],
        "spills": found["STACK"] + found["LOCAL"],
        "shared": found["SHARED"],
        "static_shared": found["SHARED"],
    }


def cuobjdump() -> str:
    """The program that ships in Triton's wheel."""
    import triton

    return os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin", "cuobjdump")


# ---- launches, on a GPU ---------------------------------------------------------------------------------


def launch_all(text: str, request: dict) -> dict:
    """Runs every launch of the request and times the last one; {"ok", "outside", "seconds", "copy_seconds"}."""
    import numpy as np
    import torch
    from cuda.core import Device

    device = Device()
    device.set_current()
    major, minor = torch.cuda.get_device_capability()
    arch = f"{major}{minor}{'a' if major >= 9 else ''}"
    kernel = compiled(text, arch).get_kernel(request["kernel"])
    tensors = np.load("tensors.npz")
    outputs, outside = {}, []
    for number, launch in enumerate(request["launches"]):
        y, guarded = launch_one(device, kernel, launch, tensors[f"{number}"])
        outputs[f"{number}"] = y
        outside.append(not guarded)
    np.savez("outputs.npz", **outputs)
    answer = {"ok": True, "outside": outside, "seconds": 0.0, "copy_seconds": 0.0}
    if any(outside):  # more rows of it could end the CUDA context
        return answer
    answer["seconds"], answer["copy_seconds"] = timed(device, kernel, request["timed"])
    return answer


def launch_one(device, kernel, launch: dict, values):
    """One launch on ``values`` (rows, columns): the output, and whether what surrounds it was left alone."""
    import torch

    x, _ = placed(torch.from_numpy(values).float(), launch["gap"])
    y, around = placed(torch.full(values.shape, float("nan")), launch["gap"], UNTOUCHED)
    run(device, kernel, launch, x, y)
    torch.cuda.synchronize()
    result = y.cpu().numpy().copy()
    y.fill_(UNTOUCHED)
    return result, bool((around == UNTOUCHED).all())


def placed(values, gap: int, around: float = float("nan")):
    """The values on the GPU with ``around`` before, after and, in ``gap`` elements, between the rows; and all of it."""
    import torch

    rows, columns = values.shape
    storage = torch.full((2 * GUARD + rows * (columns + gap),), around, device="cuda")
    view = torch.as_strided(storage, (rows, columns), (columns + gap, 1), GUARD)
    view.copy_(values)
    return view, storage


def run(device, kernel, launch: dict, x, y) -> None:
    """Launches on torch's current stream: x, y, columns, stride_x, stride_y."""
    import numpy as np
    from cuda.core import LaunchConfig
    from cuda.core import launch as start

    config = LaunchConfig(grid=launch["grid"], block=launch["threads"])
    scalars = (np.int32(x.shape[1]), np.int64(x.stride(0)), np.int64(y.stride(0)))
    start(device.default_stream, config, kernel, x.data_ptr(), y.data_ptr(), *scalars)


def timed(device, kernel, launch: dict) -> tuple[float, float]:
    """Median seconds of the launch on random values, and of a plain copy of the same tensor, measured in turns."""
    import torch

    x = torch.randn(launch["rows"], launch["columns"], device="cuda")
    y = torch.empty_like(x)
    work = {"kernel": lambda: run(device, kernel, launch, x, y), "copy": lambda: y.copy_(x)}
    found = {name: [] for name in work}
    for turn in range(WARM + TIMED):
        for name, once in work.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(AHEAD)
            begin.record()
            once()
            end.record()
            torch.cuda.synchronize()
            if turn >= WARM:
                found[name].append(begin.elapsed_time(end) / 1000)
    return statistics.median(found["kernel"]), statistics.median(found["copy"])


if __name__ == "__main__":
    main(sys.argv[1])
