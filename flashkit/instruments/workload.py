"""What a launch of the course's kernels has to do: trips round the main loop and bytes, from the traffic ledger.

Trips are listed program by program in launch order (program_id(0) first), since causal tiles differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reference.traffic import Entry, Shape, fa2, naive


@dataclass(frozen=True)
class Work:
    """One launch.

    trips      of each program round the main loop; zeros for a kernel without a loop
    requested  bytes that the programs ask for, all reads and writes; distinct: each byte read once
    written    bytes; warm: bytes of `distinct` that the launch before has just written
    live       bytes that programs running at the same time read again and again
    """

    trips: tuple[int, ...]
    requested: int
    distinct: int
    written: int
    warm: int = 0
    live: int = 0


def forward(s: Shape, sms: int = 132, resident: int = 2) -> Work:
    """The FA2 forward: a program a query tile of a head."""
    entries = fa2(s)
    heads = min(s.heads, -(-sms * resident // s.query_tiles))
    keys = s.N_k * (s.d + s.d_v) * s.itemsize
    return Work(
        tuple(s.visited(i) for i in range(s.query_tiles)) * s.heads,
        sum(entry.read + entry.written for entry in entries),
        s.heads * s.N_q * s.d * s.itemsize + s.B * s.H_kv * keys,
        sum(entry.written for entry in entries),
        live=heads * keys,
    )


def query_gradient(s: Shape) -> Work:
    """dQ: the forward's walk, with dO, lse and D read beside Q, and dQ written for O."""
    like, rows = forward(s), s.heads * s.N_q
    extra = rows * (s.d_v * s.itemsize + 2 * s.statistics)
    written = rows * s.d * s.itemsize
    requested = like.requested + extra + written - like.written
    return Work(like.trips, requested, like.distinct + extra, written, live=like.live)


def key_value_gradients(s: Shape) -> Work:
    """dK and dV: a program a key tile of a K/V head, walking the query tiles that see it."""
    group = s.H_q // s.H_kv
    first = [max(0, j * s.block_k - s.offset) // s.block_q if s.causal else 0 for j in range(s.key_tiles)]
    trips = tuple(group * max(0, s.query_tiles - at) for at in first) * (s.B * s.H_kv)
    row = (s.d + s.d_v) * s.itemsize + 2 * s.statistics  # of Q, dO, lse and D
    own = s.B * s.H_kv * s.N_k * (s.d + s.d_v) * s.itemsize  # K and V read; as much of dK and dV written
    requested = sum(trips) * s.block_q * row + 2 * own
    return Work(trips, requested, s.heads * s.N_q * row + own, own, live=min(s.heads, 8) * s.N_q * row)


def row_softmax(rows: int, columns: int, itemsize: int = 2) -> Work:
    """One program a row, read once and written once."""
    size = rows * columns * itemsize
    return Work((0,) * rows, 2 * size, size, size)


def row_dot(s: Shape) -> Work:
    """D: O and dO read once, a number a row written."""
    read, written = 2 * s.heads * s.N_q * s.d_v * s.itemsize, s.heads * s.N_q * s.statistics
    return Work((0,) * (s.heads * s.query_tiles), read + written, read, written)


def naive_attention(s: Shape) -> tuple[Work, Work, Work]:
    """Scores, softmax and P V of one head as three launches; what fits the L2 is warm for the next."""
    steps: dict[str, list[Entry]] = {}
    for entry in naive(s):
        steps.setdefault(entry.step, []).append(entry)
    whole = s.N_q * s.N_k * s.itemsize
    q, k, v = s.N_q * s.d * s.itemsize, s.N_k * s.d * s.itemsize, s.N_k * s.d_v * s.itemsize
    scores, probabilities, values = (_moved(entries) for entries in steps.values())
    return (
        Work((0,) * (s.query_tiles * s.key_tiles), sum(scores), q + k, whole, live=q + k),
        Work((0,) * s.N_q, sum(probabilities), whole, whole, warm=whole),
        Work((s.key_tiles,) * s.query_tiles, sum(values), whole + v, s.N_q * s.d_v * s.itemsize, warm=whole, live=v),
    )


def _moved(entries: Iterable[Entry]) -> tuple[int, int]:
    return sum(entry.read for entry in entries), sum(entry.written for entry in entries)
