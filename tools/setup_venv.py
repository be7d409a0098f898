"""Makes .venv from the pins, or does nothing when it is already right. Standard library only.

It is run by whatever Python the reader has, so it must parse on an old one in order to say that it is too old.
"""

import hashlib
import importlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "flashkit-stamp.json")  # written last: its presence means a whole install
UNFINISHED = os.path.join(VENV, "flashkit-unfinished")  # there while an install of ours runs, or after it was cut off
LOG = os.path.join(VENV, "flashkit-install.log")
PINS = os.path.join(ROOT, "constraints.txt")
EXTRAS = "notebooks,cuda,grading,tests"
OLDEST, NEWEST = (3, 11), (3, 13)
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
SIZES = {"cpu": (0.6, 3, 3), "cuda": (3.5, 10, 10)}  # GB to download, GB on disk, minutes at 100 Mbit/s and 2 cores

# What pip prints, and what the reader is told. The first that matches counts.
DISK_FULL = "the disk is full. Free {disk} GB in {root} and 1 GB where TMPDIR points, then run the same command again."
PIP_TROUBLE = [
    (r"No space left on device|Disk quota exceeded", DISK_FULL),
    (r"Read-only file system|Permission denied", "{root} cannot be written. Clone into a folder that you own."),
    (
        r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|Network is unreachable"
        r"|Max retries exceeded|Connection (refused|reset|aborted)|Remote end closed|from versions: none",
        "no network: pip cannot reach its package index. Connect, or set pip's proxy or index, then run the same "
        "command again (what was downloaded is kept).",
    ),
    (
        r"No matching distribution found for (?P<package>\S+)",
        "pip's package index has no {package} for this Python and platform. See `pip config list`, or choose another "
        "Python with PYTHON=.",
    ),
]


class SetupError(Exception):
    """One line for the reader: what is wrong, and what to do."""


def main():
    try:
        if is_ready():
            return 0
        check_python()
        check_folder()
        install()
        return 0
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("setup: interrupted. Run the same command again: it repairs what is half done.", file=sys.stderr)
    return 1


def is_ready():
    """True when .venv is whole, made from these pins, in this place, and with the Python that was asked for."""
    stamp = read_stamp()
    return stamp == dict(wanted_stamp(), python=stamp.get("python")) and not asks_for_another_python(stamp)


def wanted_stamp():
    digest = hashlib.sha256()
    for path in (os.path.join(ROOT, "pyproject.toml"), PINS):
        with open(path, "rb") as file:
            digest.update(file.read())
    # A venv holds absolute paths, so a folder that was moved needs a new one.
    return {"pins": digest.hexdigest(), "root": ROOT, "python": python_version()}


def read_stamp():
    """The stamp of a .venv that is whole and whose Python is still there; else {}."""
    try:
        with open(STAMP) as file:
            stamp = json.load(file)
    except (OSError, ValueError):
        return {}
    return stamp if os.access(VENV_PYTHON, os.X_OK) and not os.path.exists(UNFINISHED) else {}


def asks_for_another_python(stamp):
    return bool(os.environ.get("PYTHON_GIVEN")) and stamp.get("python") != python_version()


def python_version():
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def check_python():
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        other = next((name for name in ("python3.12", "python3.13", "python3.11") if runs(name)), "/path/to/python3.12")
        raise SetupError(
            f"{sys.executable} is Python {platform.python_version()}, but the course needs 3.11 to 3.13. "
            f"Add PYTHON={other} to the make command."
        )
    for module in ("venv", "ensurepip"):
        try:
            importlib.import_module(module)
        except ImportError:
            raise SetupError(
                f"this Python has no {module} module. On Debian: apt-get install python{python_version()}-venv; "
                "then run the same command again."
            ) from None


def runs(python):
    path = shutil.which(python)
    return path and run([path, "--version"]).returncode == 0


def run(command):
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, universal_newlines=True, errors="replace", **both)


def check_folder():
    probe = os.path.join(ROOT, f".probe-{os.getpid()}")
    try:
        with open(probe, "w") as file:
            file.write("x" * 4096)
        os.remove(probe)
    except OSError as error:
        trouble = explain_pip(error.strerror) or error.strerror
        raise SetupError(trouble.format(disk=SIZES["cpu"][1], root=ROOT)) from None


def install():
    """Installs the pinned set. Torch comes first when it comes from an index of its own."""
    index, kind = choose_torch_index()
    download, disk, minutes = SIZES[kind]
    fresh = make_venv(disk)
    if fresh:
        print(f"setup: up to {download} GB to download, {disk} GB on disk, {minutes} minutes at 100 Mbit/s (once).")
    pip(pinned("setuptools"), disk=disk)  # before the build below, which uses it
    if index:
        pip("--no-deps", "--index-url", index, pinned("torch"), disk=disk)
    pip("--no-build-isolation", "-c", PINS, "-e", f"{ROOT}[{EXTRAS}]", disk=disk)
    with open(STAMP, "w") as file:
        json.dump(dict(wanted_stamp(), python=venv_version()), file)
    os.remove(UNFINISHED)
    print("setup: .venv is ready.")


def venv_version():
    return run([VENV_PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).stdout.strip()


def pinned(package):
    with open(PINS) as file:
        return next(line.strip() for line in file if line.startswith(package + "=="))


def make_venv(disk):
    """Makes .venv unless one is there that can be updated. Returns whether it is new."""
    if os.path.lexists(VENV) and not (os.path.exists(UNFINISHED) or os.path.exists(STAMP)):
        check_foreign_venv()
    elif not can_be_updated():
        shutil.rmtree(VENV, ignore_errors=True)
        if shutil.disk_usage(ROOT).free < SIZES["cpu"][1] * 1e9:  # the least that any torch needs
            raise SetupError(DISK_FULL.format(disk=disk, root=ROOT))
        os.makedirs(VENV)
        write_unfinished()  # before the rest, so that a cut here is known as ours too
        made = run([sys.executable, "-m", "venv", VENV])
        if made.returncode:
            raise SetupError((explain_pip(made.stdout) or made.stdout.strip()[-500:]).format(disk=disk, root=ROOT))
        return True
    write_unfinished()
    return False


def check_foreign_venv():
    """A .venv that was not made here is used if it works, and never removed."""
    test = f"import sys, pip; sys.exit(not {OLDEST} <= sys.version_info[:2] <= {NEWEST})"
    try:
        works = run([VENV_PYTHON, "-c", test]).returncode == 0
    except OSError:
        works = False
    if not works:
        raise SetupError(f"{VENV} was not made here and is no working Python 3.11 to 3.13: move it away.")


def can_be_updated():
    """False when there is none, when an install was cut off, or when it was made elsewhere or for another Python."""
    stamp = read_stamp()
    return stamp.get("root") == ROOT and not asks_for_another_python(stamp)


def write_unfinished():
    with open(UNFINISHED, "w") as file:
        file.write("An install was started here and has not ended.\n")


def choose_torch_index():
    """(index URL or None for pip's own, "cpu" or "cuda"). PyPI's torch for Linux brings 3 GB of CUDA."""
    given = os.environ.get("TORCH_INDEX")
    if given:
        return given, "cpu" if given.rstrip("/").endswith("cpu") else "cuda"
    if platform.system() != "Linux":
        return None, "cpu"
    if not has_nvidia_driver() and answers(CPU_INDEX + "/torch/", seconds=3):
        return CPU_INDEX, "cpu"
    return None, "cuda"


def has_nvidia_driver():
    places = ("/proc/driver/nvidia/version", "/usr/lib/wsl/lib/nvidia-smi")
    return bool(shutil.which("nvidia-smi")) or any(map(os.path.exists, places))


def answers(url, seconds):
    """Whether `url` answers in time; a thread, because looking a name up knows no timeout."""
    answered = []

    def ask():
        try:
            urllib.request.urlopen(url, timeout=seconds).close()
            answered.append(True)
        except (OSError, ValueError):
            pass

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answered)


def pip(*arguments, disk):
    """Runs pip in .venv; shows the big downloads only and keeps the rest for the message on failure."""
    command = [VENV_PYTHON, "-m", "pip", "install", "--progress-bar", "off"] + list(arguments)
    lines = []
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, errors="replace"
    )
    for line in process.stdout:
        lines.append(line)
        big = re.match(r"\s*Downloading (\S+?)[-_]\d\S* \((\d+(?:\.\d+)? [MG]B)\)", line)
        if big and float(big.group(2).split()[0]) >= 20:
            print(f"setup: downloading {os.path.basename(big.group(1))}, {big.group(2)}", flush=True)
    if process.wait():
        output = "".join(lines)
        raise SetupError((explain_pip(output) or unknown_trouble(output)).format(disk=disk, root=ROOT))


def unknown_trouble(output):
    """pip's own last word, with all of its output in a file."""
    with open(LOG, "w") as file:
        file.write(output)
    errors = [line for line in output.splitlines() if line.lower().startswith("error")] or ["it ended early."]
    return f"pip failed: {errors[0]} (all it said: {LOG})".replace("{", "{{").replace("}", "}}")


def explain_pip(output):
    """The sentence for the first known trouble in pip's output, or None."""
    for pattern, sentence in PIP_TROUBLE:
        match = re.search(pattern, output)
        if match:
            return sentence.replace("{package}", match.groupdict().get("package", ""))
    return None


if __name__ == "__main__":
    sys.exit(main())
