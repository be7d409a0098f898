"""Planted faults of lab 02: states merged, rows normalised block by block, values carried along, all the wrong way."""

# ruff: noqa: E501  one mutant a line

from __future__ import annotations

from tests.labs.mutant import Mutant

INF = 'float("-inf")'
L = "alpha_a * l_a + alpha_b * l_b"
O = "alpha_a * o_a + alpha_b * o_b"
ALPHAS = "alpha_a, alpha_b = math.exp(m_a - m), math.exp(m_b - m)"
LARGER = "m = max(m_a, m_b)"
EMPTY = "    if m == -math.inf:\n        return m, 0.0, 0.0\n"
RETURN = f"return m, {L}, {O}"
SMALL_EXP = "float(torch.tensor({}, dtype=torch.float64).exp())"  # gives inf and nan where math.exp raises or refuses


def merge(fault: str, *patch: tuple[str, str], note: str = "") -> Mutant:
    return Mutant(fault, "solution", patch, "02.merge", note)


def exps(a: str, b: str) -> tuple[str, str]:
    return (ALPHAS, f"alpha_a, alpha_b = {SMALL_EXP.format(a)}, {SMALL_EXP.format(b)}")


def _if_empty(name: str, exponent: str) -> str:
    return f"0.0 if m_{name} == -math.inf else {SMALL_EXP.format(exponent)}"


INVERSE = (ALPHAS, f"alpha_a = {_if_empty('a', 'm - m_a')}\n    alpha_b = {_if_empty('b', 'm - m_b')}")

MERGE = (
    merge("rescale-numerator-only", (L, "l_a + l_b")),
    merge("rescale-numerator-only", (RETURN, f"l = l_a + l_b\n    return m, l, {O}")),
    merge("rescale-denominator-only", (O, "o_a + o_b")),
    merge("rescale-denominator-only", (RETURN, f"o = o_b + o_a\n    return m, {L}, o")),
    merge("rescale-neither", (L, "l_a + l_b"), (O, "o_a + o_b")),
    merge("rescale-neither", (ALPHAS, "alpha_a = alpha_b = 1.0")),
    merge("rescale-inverse", INVERSE),
    merge("rescale-inverse", (ALPHAS, ALPHAS.replace("math.exp(m_a - m), math.exp(m_b - m)", "0.0, 0.0")), (RETURN,
          f"if m_a > -math.inf:\n        alpha_a = {SMALL_EXP.format('m - m_a')}\n    if m_b > -math.inf:\n        alpha_b = {SMALL_EXP.format('m - m_b')}\n    {RETURN}")),
    merge("exp2-without-log2e", (ALPHAS, "alpha_a, alpha_b = 2.0 ** (m_a - m), 2.0 ** (m_b - m)")),
    merge("exp2-without-log2e", (ALPHAS, "alpha_a, alpha_b = math.exp2(m_a - m), math.exp2(m_b - m)")),
    merge("first-max-kept", (LARGER, "m = m_a"), exps("m_a - m", "m_b - m")),
    merge("first-max-kept", (LARGER, "m = m_b"), exps("m_a - m", "m_b - m"), note="the second, rather"),
    merge("first-max-kept", (LARGER, "m = m_a"), (EMPTY, ""),
          (ALPHAS, f"alpha_a = {_if_empty('a', 'm_a - m')}\n    alpha_b = {_if_empty('b', 'm_b - m')}"), note="empty states guarded one by one"),
    merge("states-averaged", (RETURN, "return m, 1.0, ((o_a / l_a if l_a else 0.0) + (o_b / l_b if l_b else 0.0)) / 2")),
    merge("states-averaged", (RETURN, "return m, l_a + l_b, ((o_a / l_a if l_a else 0.0) + (o_b / l_b if l_b else 0.0)) / 2")),
    merge("empty-state-nan", (EMPTY, "")),
    merge("empty-state-nan", (EMPTY, ""), exps("m_a - m", "m_b - m")),
)  # fmt: skip

# ---- 02.softmax

LOAD = f"x = tl.load(x_ptr + lanes, mask=lanes < columns, other={INF}).to(tl.float32)\n        m_new"
MAX = "m_new = tl.maximum(m, tl.max(x, 0))"
SUM = "l = l * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), 0)"
STORE = "tl.store(y_ptr + lanes, tl.exp(x - m) / l, mask=lanes < columns)"
START = f"m = {INF}"
FIRST = "for start in range(0, columns, block):\n        lanes = start + tl.arange(0, block)\n        # Load a block in"
GRID = "online_kernel[(rows,)]("


def softmax(fault: str, *patch: tuple[str, str], note: str = "") -> Mutant:
    return Mutant(fault, "solution", patch, "02.softmax", note)


def loop(header: str) -> tuple[str, str]:
    """The first pass with another range."""
    return (FIRST, FIRST.replace("for start in range(0, columns, block):", header))


def load(**changed: str) -> tuple[str, str]:
    return (
        LOAD,
        LOAD.replace(f"other={INF}", changed["other"])
        if "other" in changed
        else LOAD.replace("lanes < columns", changed["mask"]),
    )


SOFTMAX = (
    softmax("rescale-neither", (SUM, "l = l + tl.sum(tl.exp(x - m_new), 0)")),
    softmax("rescale-neither", (SUM, "l += tl.sum(tl.exp(x - m_new), 0)")),
    softmax("rescale-inverse", (SUM, "l = l * tl.exp(m_new - m) + tl.sum(tl.exp(x - m_new), 0)")),
    softmax("rescale-inverse", (SUM, f"l = tl.where(m == {INF}, 0.0, l / tl.exp(m - m_new)) + tl.sum(tl.exp(x - m_new), 0)")),
    softmax("own-max", (MAX, "m_new = tl.max(x, 0)")),
    softmax("own-max", (SUM, SUM.replace("x - m_new", "x - tl.max(x, 0)"))),
    softmax("no-max", (MAX, "m_new = 0.0"), (START, "m = 0.0")),
    softmax("no-max", (SUM, "l = l + tl.sum(tl.exp(x), 0)"), ("tl.exp(x - m) / l", "tl.exp(x) / l")),
    softmax("max-from-zero", (START, "m = 0.0")),
    softmax("max-from-zero", (MAX, "m_new = tl.maximum(tl.maximum(m, 0.0), tl.max(x, 0))")),
    softmax("tail-mask-missing", load(other="other=0.0")),
    softmax("tail-mask-missing", (MAX, f"x = tl.where(lanes < columns, x, 0.0)\n        {MAX}")),
    softmax("finite-mask-value", load(other="other=-1e9")),
    softmax("finite-mask-value", (MAX, f"x = tl.where(lanes < columns, x, -10000.0)\n        {MAX}")),
    softmax("mask-after-max", load(other="other=0.0"), (SUM, f"x = tl.where(lanes < columns, x, {INF})\n        {SUM}")),
    softmax("mask-after-max", (MAX, "m_new = tl.maximum(m, tl.max(tl.where(lanes < columns, x, 0.0), 0))")),
    softmax("exp2-without-log2e", (SUM, SUM.replace("tl.exp(", "tl.exp2(")), ("tl.exp(x - m) / l", "tl.exp2(x - m) / l")),
    softmax("exp2-without-log2e", (SUM, SUM.replace("tl.exp(", "tl.math.exp2(")), ("tl.exp(x - m) / l", "tl.math.exp2(x - m) / l")),
    softmax("division-forgotten", ("tl.exp(x - m) / l", "tl.exp(x - m)")),
    softmax("division-forgotten", (STORE, "y = tl.exp(x - m)\n        tl.store(y_ptr + lanes, y, mask=lanes < columns)")),
    softmax("key-tail-lost", loop("for start in range(0, columns // block * block, block):")),
    softmax("key-tail-lost", loop("for start in range(0, columns - block + 1, block):")),
    softmax("last-tile-twice", (FIRST, FIRST.replace("for start in range(0, columns, block):\n", "for step in range(0, tl.cdiv(columns, block) + 1):\n        start = tl.minimum(step, tl.cdiv(columns, block) - 1) * block\n"))),
    softmax("last-tile-twice", (SUM, f"{SUM.replace('tl.sum(', '(1 + (start + block >= columns)) * tl.sum(')}")),
    softmax("first-tile-skipped", loop("for start in range(block, columns, block):")),
    softmax("first-tile-skipped", loop("for step in range(1, tl.cdiv(columns, block)):\n        start = step * block"), note="counts blocks from 1"),
    softmax("tail-load-unmasked", (LOAD, f"x = tl.load(x_ptr + lanes).to(tl.float32)\n        x = tl.where(lanes < columns, x, {INF})\n        m_new")),
    softmax("tail-load-unmasked", load(mask="lanes <= columns"), note="off by one"),
    softmax("tail-store-unmasked", (STORE, "tl.store(y_ptr + lanes, tl.exp(x - m) / l)")),
    softmax("tail-store-unmasked", (STORE, STORE.replace("< columns", "<= columns"))),
    softmax("race", (GRID, "online_kernel[(rows, 2)](")),
    softmax("race", ("y_ptr += row * stride_y", "y_ptr += row // 2 * stride_y")),
)  # fmt: skip

# ---- 02.weighted_sum

S_LOAD = f"s = tl.load(s_ptr + row * stride_s + keys, mask=keys < columns, other={INF}).to(tl.float32)"
V_LOAD = "V_j = tl.load(v_ptr + keys[:, None] * stride_v + cols_v[None, :], mask=keys[:, None] < columns, other=0.0)"
S_MAX = "m_new = tl.maximum(m, tl.max(s, 0))"
ALPHA = "alpha = tl.exp(m - m_new)"
P = "P = tl.exp(s - m_new)"
L_SUM = "l = alpha * l + tl.sum(P, 0)"
ACC = "acc = alpha * acc + tl.sum(P[:, None] * V_j, 0)"
S_LOOP = "for start in range(0, columns, block):"
S_STORE = "tl.store(o_ptr + row * stride_o + cols_v, acc / l)"
S_GRID = "weighted_sum_kernel[(rows,)]("


def weighted(fault: str, *patch: tuple[str, str], note: str = "") -> Mutant:
    return Mutant(fault, "solution", patch, "02.weighted_sum", note)


WEIGHTED = (
    weighted("rescale-numerator-only", (L_SUM, "l = l + tl.sum(P, 0)")),
    weighted("rescale-numerator-only", (L_SUM, "l += tl.sum(P, 0)")),
    weighted("rescale-denominator-only", (ACC, "acc = acc + tl.sum(P[:, None] * V_j, 0)")),
    weighted("rescale-denominator-only", (ACC, "acc += tl.sum(P[:, None] * V_j, 0)")),
    weighted("rescale-neither", (L_SUM, "l += tl.sum(P, 0)"), (ACC, "acc += tl.sum(P[:, None] * V_j, 0)")),
    weighted("rescale-neither", (ALPHA, "alpha = 1.0")),
    weighted("rescale-inverse", (ALPHA, f"alpha = tl.where(m == {INF}, 0.0, tl.exp(m_new - m))")),
    weighted("rescale-inverse", (ALPHA, "alpha = tl.exp(m_new - m)")),
    weighted("own-max", (S_MAX, "m_new = tl.max(s, 0)")),
    weighted("own-max", (P, "P = tl.exp(s - tl.max(s, 0))")),
    weighted("no-max", (S_MAX, "m_new = 0.0"), (f"m = {INF}", "m = 0.0")),
    weighted("no-max", (ALPHA, "alpha = 1.0"), (P, "P = tl.exp(s)")),
    weighted("max-from-zero", (f"m = {INF}", "m = 0.0")),
    weighted("max-from-zero", (S_MAX, "m_new = tl.maximum(m, tl.maximum(tl.max(s, 0), 0.0))")),
    weighted("normalised-every-step", (ACC, ACC + "\n        acc = acc / l")),
    weighted("normalised-every-step", (ACC, ACC + "\n        acc = acc / l"), (S_STORE, S_STORE.replace("acc / l", "acc"))),
    weighted("division-forgotten", (S_STORE, S_STORE.replace("acc / l", "acc"))),
    weighted("division-forgotten", (S_STORE, f"acc = acc * 1.0\n    {S_STORE.replace('acc / l', 'acc')}")),
    weighted("tail-mask-missing", (S_LOAD, S_LOAD.replace(INF, "0.0"))),
    weighted("tail-mask-missing", (S_MAX, f"s = tl.where(keys < columns, s, 0.0)\n        {S_MAX}")),
    weighted("finite-mask-value", (S_LOAD, S_LOAD.replace(INF, "-1e9"))),
    weighted("finite-mask-value", (S_LOAD, S_LOAD.replace(INF, "-10000.0"))),
    weighted("mask-after-max", (S_LOAD, S_LOAD.replace(INF, "0.0")), (ALPHA, f"s = tl.where(keys < columns, s, {INF})\n        {ALPHA}")),
    weighted("mask-after-max", (S_MAX, "m_new = tl.maximum(m, tl.max(tl.where(keys < columns, s, 0.0), 0))")),
    weighted("exp2-without-log2e", (ALPHA, "alpha = tl.exp2(m - m_new)"), (P, "P = tl.exp2(s - m_new)")),
    weighted("exp2-without-log2e", (P, "P = tl.exp2(s - m_new)"), note="in the weights alone"),
    weighted("key-tail-lost", (S_LOOP, "for start in range(0, columns // block * block, block):")),
    weighted("key-tail-lost", (S_LOOP, "for start in range(0, columns - block + 1, block):")),
    weighted("last-tile-twice", (S_LOOP, "for step in range(0, tl.cdiv(columns, block) + 1):\n        start = tl.minimum(step, tl.cdiv(columns, block) - 1) * block")),
    weighted("last-tile-twice", (P, f"{P} * (1.0 + (start + block >= columns))")),
    weighted("first-tile-skipped", (S_LOOP, "for start in range(block, columns, block):")),
    weighted("first-tile-skipped", ("keys = start + tl.arange(0, block)", "keys = start + block + tl.arange(0, block)")),
    weighted("tail-load-unmasked", (S_LOAD, f"s = tl.load(s_ptr + row * stride_s + keys).to(tl.float32)\n        s = tl.where(keys < columns, s, {INF})")),
    weighted("tail-load-unmasked", (S_LOAD, S_LOAD.replace("keys < columns", "keys <= columns"))),
    weighted("v-tail-unmasked", (V_LOAD, V_LOAD.replace(", mask=keys[:, None] < columns, other=0.0", ""))),
    weighted("v-tail-unmasked", (V_LOAD, V_LOAD.replace("< columns", "<= columns"))),
    weighted("other-missing", (V_LOAD, V_LOAD.replace(", other=0.0", ""))),
    weighted("other-missing", (V_LOAD, V_LOAD.replace(", other=0.0)", ").to(tl.float32)"))),
    weighted("race", (S_GRID, "weighted_sum_kernel[(rows, 2)](")),
    weighted("race", ("o_ptr + row * stride_o", "o_ptr + row // 2 * stride_o")),
)  # fmt: skip

MUTANTS = MERGE + SOFTMAX + WEIGHTED

# Scores loaded without `other` have two mistakes: a GPU leaves anything there, and 0 would be a score.
TWO_FAULTS = (
    softmax("other-missing + tail-mask-missing", (LOAD, LOAD.replace(f", other={INF}", ""))),
    softmax("other-missing + tail-mask-missing", (LOAD, "x = tl.load(x_ptr + lanes, mask=lanes < columns)\n        x = x.to(tl.float32)\n        m_new")),
    weighted("other-missing + tail-mask-missing", (S_LOAD, S_LOAD.replace(f", other={INF}", ""))),
)  # fmt: skip
