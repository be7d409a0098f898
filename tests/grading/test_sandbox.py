"""What student code finds in the sandbox: the runtime part of flashkit, and nothing else that it should not."""

import json
import os
import time

import pytest

from flashkit.grading.sandbox import Limits, Sandbox, descendants, no_new_namespaces
from flashkit.runtime import wire

pytestmark = pytest.mark.classroom


@pytest.fixture(scope="module")
def sandbox():
    os.environ["GRADERS_OWN"] = "secret"
    sandbox = Sandbox(Limits(memory=2**30, disk=2**25, processes=12))
    yield sandbox
    sandbox.close()
    del os.environ["GRADERS_OWN"]


def tell(sandbox, source: str, seconds: float = 20):
    """Runs a cell that raises what it has to tell, as JSON; returns that, and whether the sandbox is clean after it."""
    channel = sandbox.begin()
    cells = [["cell", "import json\ndef tell(x):\n    raise Exception(json.dumps(x))\n" + source]]
    wire.send(channel, {"cells": cells, "function": "none", "seconds": seconds})
    said, told = {}, None
    while "ready" not in said:
        said, _ = wire.receive(channel, time.monotonic() + seconds + 60)
        if "failed" in said:
            told = said["problem"]["sentence"]
    channel.close()
    _, clean = sandbox.end()
    found = told and told[told.index("Exception: ") + len("Exception: ") :] if told and "Exception: " in told else told
    return (json.loads(found) if found and found[0] in '[{"' else found), clean


def test_flashkit_is_the_runtime_part_alone(sandbox):
    source = """
import importlib, flashkit
found = {}
for name in ("runtime.runner", "instruments.meter", "exercises", "check.compare", "grading.judge", "figures"):
    try:
        importlib.import_module("flashkit." + name); found[name] = True
    except ImportError:
        found[name] = False
try:
    import reference
except BaseException as error:
    found["reference"] = type(error).__name__
tell(found)
"""
    hidden = dict.fromkeys(("exercises", "check.compare", "grading.judge", "figures"), False)
    shown = dict.fromkeys(("runtime.runner", "instruments.meter"), True)
    assert tell(sandbox, source) == ({**hidden, **shown, "reference": "Refused"}, True)


def test_a_cell_is_compiled_as_in_a_notebook(sandbox):
    """Without the server's own `from __future__ import annotations`, which would make texts of them."""
    assert tell(sandbox, "def f(x: int): pass\ntell([f.__annotations__['x'] is int])") == ([True], True)


def test_a_magic_that_is_called_by_name_does_nothing(sandbox):
    source = "get_ipython().run_line_magic('matplotlib', 'inline')\ntell(['colab' in str(get_ipython())])"
    assert tell(sandbox, source) == ([False], True)


def test_no_course_file_can_be_found(sandbox):
    source = """
import os
NAMES = "forward_faults.py", "grader_config.py", "judge.py", "online_softmax.py", ".grading_seed", "gradebook.db"
found = []
for top in set(os.listdir("/")) - {"proc", "sys"}:
    for folder, _, files in os.walk("/" + top):
        found += [os.path.join(folder, f) for f in files if f in NAMES and "site-packages/nbgrader/" not in folder]
tell(found)
"""
    assert tell(sandbox, source, seconds=60) == ([], True)


def test_neither_environment_nor_command_line_tell_of_the_grader(sandbox):
    source = """
import os
lines = [open(f"/proc/{p}/cmdline").read() for p in os.listdir("/proc") if p.isdigit()]
tell([sorted(os.environ), "secret" in repr(os.environ), any("submitted" in line for line in lines)])
"""
    (names, secret, submitted), _ = tell(sandbox, source)
    assert not secret and not submitted
    assert not [name for name in names if "GRAD" in name.upper() or "SEED" in name]


def test_nothing_can_be_written_but_tmp(sandbox):
    source = """
import os, sys
refused = []
for folder in ("/", "/usr", "/dev", "/course", "/etc", sys.prefix, os.path.dirname(os.__file__), "/proc/sys/kernel"):
    try:
        open(os.path.join(folder, "mine"), "w").close()
    except OSError:
        refused.append(folder)
tell(len(refused))
"""
    assert tell(sandbox, source) == ("8", True)


def test_there_is_no_network(sandbox):
    source = """
import socket
names = [name for _, name in socket.if_nameindex()]
try:
    socket.create_connection(("1.1.1.1", 53), 2)
    tell(["reached"])
except OSError:
    tell(names)
"""
    assert tell(sandbox, source) == (["lo"], True)


def test_the_server_cannot_be_read_or_traced(sandbox):
    source = """
import os, ctypes
parent = os.getppid()
tries = {}
for name in ("mem", "environ", "maps"):
    try:
        open(f"/proc/{parent}/{name}")
        tries[name] = True
    except OSError:
        tries[name] = False
tries["ptrace"] = ctypes.CDLL(None).ptrace(16, parent, 0, 0) == 0
tell(tries)
"""
    assert tell(sandbox, source) == (dict.fromkeys(("mem", "environ", "maps", "ptrace"), False), True)


@pytest.mark.skipif(not no_new_namespaces(), reason="bubblewrap cannot forbid user namespaces here")
def test_no_user_namespace_of_its_own(sandbox):
    """In one it could mount file systems, whose memory no limit counts."""
    told, _ = tell(sandbox, "import ctypes\ntell([ctypes.CDLL(None).unshare(0x10000000)])")
    assert told == [-1]


def test_what_is_left_behind_is_ended_and_swept(sandbox):
    source = """
import os, time
os.makedirs("/tmp/left/behind")
open("/tmp/left/file", "w").write("x")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
"""
    assert tell(sandbox, source) == (None, True)
    assert tell(sandbox, "import os\ntell(os.path.exists('/tmp/left'))")[0] == "false"
    assert len(descendants(sandbox._process.pid)) <= 2


def test_the_next_child_works_after_one_that_killed_itself(sandbox):
    channel = sandbox.begin()
    wire.send(channel, {"cells": [["cell", "import os\nos._exit(3)"]], "function": "f", "seconds": 5})
    with pytest.raises(wire.WireError):
        while True:
            wire.receive(channel, time.monotonic() + 60)
    channel.close()
    assert sandbox.end() == ("It ended its own process (exit status 3).", True)
    assert tell(sandbox, "tell([1])") == ([1], True)


def test_memory_that_forked_processes_share_counts_once(sandbox):
    source = """
import os, time
held = bytearray(os.urandom(2**20) * 300)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(60)
time.sleep(1)
tell(["still here"])
"""
    assert tell(sandbox, source) == (["still here"], True)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("hog = [bytearray(2**24) for _ in range(1000)]", "GiB of memory"),
        ("import mmap\nhog = [mmap.mmap(-1, 2**28) for _ in range(8)]\nfor m in hog: m[:] = bytes(2**28)", "memory"),
        ("import os, time\nfor _ in range(40):\n    os.fork() or time.sleep(60)", "processes"),
    ],
    ids=["memory", "shared-memory", "processes"],
)
def test_too_much_ends_the_sandbox_soon(source, reason):
    sandbox = Sandbox(Limits(memory=2**30, disk=2**25, processes=6))
    channel = sandbox.begin()
    wire.send(channel, {"cells": [["cell", source]], "function": "f", "seconds": 60})
    with pytest.raises(wire.WireError, match="closed|Reset"):  # and not "too slow"
        while True:
            wire.receive(channel, time.monotonic() + 60)
    assert reason in sandbox.end()[0]
    pid = sandbox._process.pid
    sandbox.close()
    assert not descendants(pid)
