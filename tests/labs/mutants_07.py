"""Planted faults of lab 07 (a) to (c): barrier programs with a wait, a phase, a count or a trip too few or too many."""

# ruff: noqa: E501  one mutant a line

from __future__ import annotations

from tests.labs.mutant import Mutant


def mutant(exercise: str, fault: str, *patch: tuple[str, str], note: str = "") -> Mutant:
    return Mutant(fault, "solution", patch, f"07.{exercise}", note)


# ---- 07.ring

FREE = '            yield "wait", f"empty{s}", (use + 1) % 2  # passes at once when the tile is new\n'
FULL = '            yield "wait", f"full{s}", use % 2\n'
READ = '            yield "matmul", "C", f"K{s}", j\n'
DRAIN = '            yield "drain", 0\n'
BACK = '            yield "arrive", f"empty{s}"\n'
COPIES = f"        for j in range(blocks):\n            s, use = j % stages, j // stages\n{FREE}"
READS = f"        for j in range(blocks):\n            s, use = j % stages, j // stages\n{FULL}"


def guarded(line: str, condition: str) -> str:
    """The line under an if, one step further in."""
    return f"            if {condition}:\n    {line}"


RING = (
    mutant("ring", "missing-wait", (FREE, "")),
    mutant("ring", "missing-wait", (FULL, "")),
    mutant("ring", "missing-wait", (FULL, guarded(FULL, "j")), note="not for the first block"),
    mutant("ring", "wrong-phase", ("(use + 1) % 2", "use % 2"), note="a new barrier does not pass wait 0"),
    mutant("ring", "wrong-phase", (FULL, FULL.replace("use % 2", "(use + 1) % 2"))),
    mutant("ring", "wrong-phase", (FULL, FULL.replace("use % 2", "j % 2")), note="the block's parity, not the use's"),
    mutant("ring", "wrong-phase", (FULL, FULL.replace("use % 2", "0")), note="the phase never turns"),
    mutant("ring", "wrong-phase", ("(use + 1) % 2", "1"), note="the producer's phase never turns"),
    mutant("ring", "release-before-use", (READ + DRAIN + BACK, READ + BACK + DRAIN), note="queued is not done"),
    mutant("ring", "release-before-use", (FULL + READ + DRAIN + BACK, FULL + BACK + READ + DRAIN)),
    mutant("ring", "never-released", (BACK, "")),
    mutant("ring", "never-released", (BACK, guarded(BACK, "s")), note="not tile 0"),
    mutant("ring", "stage-reused-early", (FREE, guarded(FREE, "j > stages")), note="block number `stages` is the first that needs a tile again"),
    mutant("ring", "stage-reused-early", (FREE, FREE.replace("{s}", "{(s + 1) % stages}")), note="the neighbour's barrier"),
    mutant("ring", "stage-reused-early", (FREE, guarded(FREE, "s == 0")), note="once a round"),
    mutant("ring", "producer-short", (COPIES, COPIES.replace("range(blocks)", "range(blocks - 1)"))),
    mutant("ring", "producer-short", (COPIES, COPIES.replace("range(blocks)", "range(blocks // stages * stages)")), note="only whole rounds"),
    mutant("ring", "barrier-count", ('f"empty{s}": 1', 'f"empty{s}": 2'), note="producer and consumer counted"),
    mutant("ring", "barrier-count", ('f"full{s}": 1', 'f"full{s}": 2')),
    mutant("ring", "last-block", (COPIES, COPIES.replace("blocks)", "blocks - 1)")), (READS, READS.replace("blocks)", "blocks - 1)")), note="both loops end early"),
    mutant("ring", "last-block", (READS, READS.replace("blocks)", "blocks - 1)")), note="only the consumer's loop"),
    mutant("ring", "too-many-tiles", ("    barriers =", "    stages = blocks\n    barriers ="), note="a tile for each block"),
    mutant("ring", "too-many-tiles", ("    barriers =", "    stages += 1\n    barriers ="), note="one more than there is room for"),
)  # fmt: skip

# ---- 07.ping_pong

SIGNAL = '        yield "signal", other, 2\n'
PRIME = '        if me == 1:\n            yield "signal", "turn0", 2  # the first turn\n'
FIRST = '        yield "matmul", "S", "K0", 0\n' + SIGNAL
SYNC = '            yield "sync", mine, 2\n'
SOFTMAX = '            yield "exp", j\n            yield "update", j\n'
PASS = f"            if me == 0 or j + 1 < blocks:\n        {SIGNAL}"
DONE = '            yield "drain", 1 if j + 1 < blocks else 0\n'
BACK_V = '            yield "arrive", f"empty_v{s}"\n'
BACK_K = '                yield "arrive", f"empty_k{t}"\n'
WAIT_V = '            yield "wait", f"full_v{s}", use % 2\n'
WAIT_FREE = '                yield "wait", f"empty_{name}", (use + 1) % 2\n'
LOOP = "        for j in range(blocks):\n            s, use = j % stages, j // stages\n            for tensor"
LATE_PASS = f"            if me == 0 and j + 1 == blocks:\n        {SIGNAL}"
LATE = (('K0", 0\n' + SIGNAL, 'K0", 0\n'), (PASS, LATE_PASS))

PING_PONG = (
    mutant("ping_pong", "turn-not-primed", (PRIME, "")),
    mutant("ping_pong", "turn-not-primed", ('"turn0", 2  # the first turn', '"turn1", 2'), note="its own turn"),
    mutant("ping_pong", "turn-kept", *LATE, (SOFTMAX, f"{SOFTMAX}    {SIGNAL}"), note="after the softmax"),
    mutant("ping_pong", "turn-kept", *LATE, (SOFTMAX, SOFTMAX.replace("            yield \"update\"", f"    {SIGNAL}            yield \"update\"")), note="after the exponentials"),
    mutant("ping_pong", "outside-turn", (SYNC, ""), (PASS, ""), note="only the first S has a turn"),
    mutant("ping_pong", "outside-turn", (SOFTMAX + SYNC + WAIT_V + '            yield "matmul", "O", f"V{s}", j\n', SOFTMAX + WAIT_V + '            yield "matmul", "O", f"V{s}", j\n' + SYNC), note="O before its turn"),
    mutant("ping_pong", "barrier-count", ('f"empty_{name}": 2', 'f"empty_{name}": 1'), note="one arrival, two consumers"),
    mutant("ping_pong", "barrier-count", ('f"empty_{name}": 2', 'f"empty_{name}": 3'), note="all three roles"),
    mutant("ping_pong", "missing-wait", (WAIT_V, "")),
    mutant("ping_pong", "wrong-phase", (WAIT_V, WAIT_V.replace("use", "j"))),
    mutant("ping_pong", "release-before-use", (DONE + BACK_V, BACK_V + DONE)),
    mutant("ping_pong", "never-released", (BACK_V, "")),
    mutant("ping_pong", "never-released", (BACK_K, BACK_K.replace('yield "arrive", f"empty_k{t}"', "pass")), note="no K but the first"),
    mutant("ping_pong", "producer-short", (LOOP, LOOP.replace("blocks)", "blocks - 1)"))),
    mutant("ping_pong", "stage-reused-early", (WAIT_FREE, '                if tensor == "K":\n    ' + WAIT_FREE), note="V without"),
)  # fmt: skip

# ---- 07.overlap

REST = "for j in range(blocks, max(trips)):"
LAST = '        yield from product("O", "V", blocks - 1)\n'
DRAIN_1 = '            yield "drain", 1  # S_j is done, O_j-1 may still run\n'
BACK_K_J = '            yield "arrive", f"empty_k{j % stages}"\n'
EXP = '            yield "exp", j\n'
BACK_V_J = '            yield "arrive", f"empty_v{(j - 1) % stages}"\n'
UPDATE = '            yield "update", j\n'
PRODUCT_WAIT = '        yield "wait", f"full_{tensor.lower()}{j % stages}", j // stages % 2\n'

OVERLAP = (
    mutant("overlap", "trip-counts", (REST, "for j in range(0):"), note="causal: the shorter consumer just ends"),
    mutant("overlap", "trip-counts", ('for name in (f"k{j % stages}", f"v{j % stages}"):', 'for name in (f"k{j % stages}",):'), note="only K is handed back"),
    mutant("overlap", "drained-all", (DRAIN_1, DRAIN)),
    mutant("overlap", "drained-all", (DRAIN_1, DRAIN), (EXP + DRAIN + BACK_V_J, BACK_V_J + EXP)),
    mutant("overlap", "registers-in-use", (DRAIN + BACK_V_J + UPDATE, UPDATE + DRAIN + BACK_V_J)),
    mutant("overlap", "registers-in-use", (DRAIN + BACK_V_J, BACK_V_J), note="neither drained nor safe to hand back"),
    mutant("overlap", "last-block", (LAST, LAST.replace('yield from product("O", "V", blocks - 1)', 'yield "wait", f"full_v{(blocks - 1) % stages}", (blocks - 1) // stages % 2')), note="O of the last block is left out"),
    mutant("overlap", "last-block", ("    roles = {", "    trips = [max(1, n - 1) for n in trips]\n    roles = {"), note="the loop as algorithm 2 prints it"),
    mutant("overlap", "barrier-count", ('f"empty_{name}": len(trips)', 'f"empty_{name}": 2'), note="also for one consumer"),
    mutant("overlap", "barrier-count", ('f"empty_{name}": len(trips)', 'f"empty_{name}": 1')),
    mutant("overlap", "producer-short", ("for j in range(max(trips)):", "for j in range(min(trips)):"), note="the shorter consumer's trips"),
    mutant("overlap", "producer-short", ("for j in range(max(trips)):", "for j in range(trips[0]):"), note="consumer 0's trips"),
    mutant("overlap", "release-before-use", (EXP + DRAIN + BACK_V_J, BACK_V_J + EXP + DRAIN)),
    mutant("overlap", "wrong-phase", (PRODUCT_WAIT, PRODUCT_WAIT.replace("j // stages % 2", "j % 2"))),
    mutant("overlap", "missing-wait", (PRODUCT_WAIT, "")),
    mutant("overlap", "never-released", (BACK_K_J, "")),
    mutant("overlap", "never-released", (BACK_V_J, ""), note="only the last V"),
    mutant("overlap", "stage-reused-early", (WAIT_FREE, "                if use > 1:\n    " + WAIT_FREE), note="the first reuse does not wait"),
)  # fmt: skip

MUTANTS = (*RING, *PING_PONG, *OVERLAP)

TWO_FAULTS = (
    mutant("ring", "missing-wait + barrier-count", (FULL, ""), ('f"empty{s}": 1', 'f"empty{s}": 2')),
    mutant("ring", "wrong-phase + release-before-use", (FULL, FULL.replace("use % 2", "j % 2")), (READ + DRAIN + BACK, READ + BACK + DRAIN)),
    mutant("ring", "producer-short + never-released", (COPIES, COPIES.replace("range(blocks)", "range(blocks - 1)")), (BACK, "")),
    mutant("ping_pong", "turn-not-primed + wrong-phase", (PRIME, ""), (WAIT_V, WAIT_V.replace("use", "j"))),
    mutant("overlap", "trip-counts + drained-all", (REST, "for j in range(0):"), (DRAIN_1, DRAIN)),
    mutant("overlap", "registers-in-use + stage-reused-early", (DRAIN + BACK_V_J + UPDATE, UPDATE + DRAIN + BACK_V_J), (WAIT_FREE, "                if use > 1:\n    " + WAIT_FREE)),
)  # fmt: skip

EQUIVALENT = (
    mutant("overlap", "release-before-use", (DRAIN_1 + BACK_K_J, BACK_K_J + DRAIN_1), note="K_j is given back before S_j is drained, but the producer fills V_j+1 before K_j+2, and waits for V_j-1, which is given back after it"),
    mutant("overlap", "trip-counts", (REST, "for j in range(blocks, max(trips) - 1):"), note="nobody needs the very last tiles again"),
    mutant("ping_pong", "turn-not-primed", (PASS, f"    {SIGNAL}"), note="consumer 1 signals once more than anybody syncs: named barriers end with the program, so nobody meets that arrival; a program that went on to another tile would have it in the place of its first signal"),
    mutant("ping_pong", "turn-kept", (PASS + DONE, DONE + PASS), note="S_j+1 is queued behind O_j, so the tensor core has work until the signal comes"),
)  # fmt: skip
