"""The chapter's barrier programs, and the closed forms of their makespans. Each returns roles and barrier counts.

A ring of ``stages`` tiles: block j goes through tile ``j % stages``, and ``j // stages`` says how often that tile was
used before. The consumer waits for the phase ``(j // stages) % 2`` of the full barrier; the producer for the phase
before it of the empty barrier, which on a new barrier passes at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Roles = dict[str, list[tuple]]
Made = tuple[Roles, dict[str, int]]


def ring(blocks: int, stages: int) -> Made:
    """One producer, one consumer: the consumer hands a tile back once its product is done."""
    consumer = []
    for j in range(blocks):
        s, phase = j % stages, j // stages % 2
        consumer += [("wait", f"full{s}", phase), ("matmul", "C", f"K{s}", j), ("drain", 0), ("arrive", f"empty{s}")]
    return {"producer": list(_fill("K", range(blocks), stages, "")), "consumer": consumer}, _counts([""], stages, 1)


def _fill(tensor: str, blocks: Sequence[int], stages: int, of: str) -> Iterator[tuple]:
    """A producer's instructions for one tensor; ``of`` is what its barriers' names end in before the stage."""
    for n, j in enumerate(blocks):
        s = n % stages
        yield "wait", f"empty{of}{s}", (n // stages + 1) % 2
        yield "copy", f"{tensor}{s}", j, f"full{of}{s}"


def _counts(tensors: Sequence[str], stages: int, consumers: int) -> dict[str, int]:
    full = {f"full{t}{s}": 1 for t in tensors for s in range(stages)}
    return full | {f"empty{t}{s}": consumers for t in tensors for s in range(stages)}


def makespan(blocks: int, stages: int, copy: float, matmul: float) -> float:
    """When :func:`ring` ends: stage 1 does everything in turn; with 2 or more the slower unit sets the pace.

    Serial: n (c + m). Otherwise fill, n - 1 periods of the slower unit, drain: c + (n - 1) max(c, m) + m.
    """
    if stages == 1:
        return blocks * (copy + matmul)
    return copy + (blocks - 1) * max(copy, matmul) + matmul


# ---- attention: K and V in rings of their own -----------------------------------------------------------


def attention(trips: Sequence[int], stages: int, turns: bool = False, overlap: bool = False) -> Made:
    """FlashAttention-3's forward: a producer warp, and one consumer warpgroup for each number of key blocks in trips.

    turns    two consumers take turns with the tensor core (ping-pong), by named barriers
    overlap  S of block j + 1 is queued before O of block j, so that its softmax runs under that product
    A consumer with fewer blocks than another hands back the tiles that it does not need.
    """
    most = max(trips)
    producer = []
    loads = [list(_fill(t, range(most), stages, f"_{t.lower()}")) for t in "KV"]
    for j in range(most):
        for load in loads:
            producer += load[2 * j : 2 * j + 2]
    one = _overlapped if overlap else _serial
    names = [f"consumer{c}" if len(trips) > 1 else "consumer" for c in range(len(trips))]
    roles: Roles = {"producer": producer}
    for c, name in enumerate(names):
        pair = (c, 1 - c) if turns else None
        roles[name] = list(one(trips[c], stages, pair)) + list(_hand_back(trips[c], most, stages))
    return roles, _counts(["_k", "_v"], stages, len(trips))


def without_producer(blocks: int, stages: int) -> Made:
    """Two overlapped consumers that copy for themselves: both must have done with a block before it is replaced.

    Consumer 0 issues the copies; a named barrier of both stands where the empty barriers were, as __syncthreads does.
    """
    load = [[("copy", f"{t}{j % stages}", j, f"full_{t.lower()}{j % stages}") for t in "KV"] for j in range(blocks)]
    roles: Roles = {}
    for c in range(2):
        mine = [i for j in range(min(stages, blocks)) for i in load[j]] if c == 0 else []
        for i in _overlapped(blocks, stages, None):
            if i[0] != "arrive":
                mine.append(i)
            elif i[1].startswith("empty_v"):  # K of the block went before
                done = sum(step[0] == "sync" for step in mine)
                mine.append(("sync", "block", 2))
                if c == 0 and done + stages < blocks:
                    mine += load[done + stages]
        roles[f"consumer{c}"] = mine
    return roles, _counts(["_k", "_v"], stages, 1)


def _use(product: str, j: int, stages: int) -> list[tuple]:
    """Wait for the block and queue its product."""
    tensor = "K" if product == "S" else "V"
    s, phase = j % stages, j // stages % 2
    return [("wait", f"full_{tensor.lower()}{s}", phase), ("matmul", product, f"{tensor}{s}", j)]


def _release(tensor: str, j: int, stages: int) -> tuple:
    return ("arrive", f"empty_{tensor}{j % stages}")


def _my_turn(pair: tuple[int, int] | None) -> list[tuple]:
    return [("sync", f"turn{pair[0]}", 2)] if pair else []


def _your_turn(pair: tuple[int, int] | None) -> list[tuple]:
    return [("signal", f"turn{pair[1]}", 2)] if pair else []


def _serial(blocks: int, stages: int, pair: tuple[int, int] | None) -> Iterator[tuple]:
    """Product, softmax, product, one after the other; O_j and S_j+1 are one turn, as in the paper's figure 1."""
    if pair and pair[0] == 1:
        yield "signal", "turn0", 2  # the first turn is consumer 0's
    for j in range(blocks):
        if j == 0:
            yield from _my_turn(pair)
            yield from _use("S", j, stages)
            yield from _your_turn(pair)
            yield "drain", 0
            yield _release("k", j, stages)
        yield "exp", j
        yield "update", j
        yield from _my_turn(pair)
        yield from _use("O", j, stages)
        if j + 1 < blocks:
            yield from _use("S", j + 1, stages)
        yield from () if pair and pair[0] == 1 and j + 1 == blocks else _your_turn(pair)
        yield "drain", 1 if j + 1 < blocks else 0
        yield _release("v", j, stages)
        if j + 1 < blocks:
            yield "drain", 0
            yield _release("k", j + 1, stages)


def _overlapped(blocks: int, stages: int, pair: tuple[int, int] | None) -> Iterator[tuple]:
    """FlashAttention-3, algorithm 2, with the last block: S_j+1 is queued before O_j, its softmax runs under O_j."""
    if pair and pair[0] == 1:
        yield "signal", "turn0", 2
    yield from _my_turn(pair)
    yield from _use("S", 0, stages)
    yield from _your_turn(pair)
    yield "drain", 0
    yield _release("k", 0, stages)
    yield "exp", 0
    yield "update", 0
    for j in range(1, blocks):
        yield from _my_turn(pair)
        yield from _use("S", j, stages)
        yield from _use("O", j - 1, stages)
        yield from _your_turn(pair)
        yield "drain", 1
        yield _release("k", j, stages)
        yield "exp", j
        yield "drain", 0
        yield _release("v", j - 1, stages)
        yield "update", j
    yield from _my_turn(pair)
    yield from _use("O", blocks - 1, stages)
    yield from () if pair and pair[0] == 1 else _your_turn(pair)
    yield "drain", 0
    yield _release("v", blocks - 1, stages)


def _hand_back(mine: int, most: int, stages: int) -> Iterator[tuple]:
    for j in range(mine, most):
        for tensor in "kv":
            yield "wait", f"full_{tensor}{j % stages}", j // stages % 2
            yield _release(tensor, j, stages)
