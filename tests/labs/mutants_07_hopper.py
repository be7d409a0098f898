"""Planted faults of 07.descriptors: the forward's known mistakes, as they look when tiles come through descriptors.

Their other spellings are lab 03's. Gluon's mutants are in test_gluon.py, where they run in the emulator.
"""

# ruff: noqa: E501  one mutant a line

from __future__ import annotations

from tests.labs.mutant import Mutant

ACC = "acc = alpha[:, None] * acc\n"
FINITE = 'm_finite = tl.where(m_new == float("-inf"), 0.0, m_new)'
LAST = "last = tl.minimum(last, rows + offset)"
END = "end = tl.minimum(N_k, tl.maximum(0, (i + 1) * block_q + offset))"
WHOLE = "whole = tl.minimum(whole, tl.maximum(0, i * block_q + offset + 1) // block_k * block_k)"
START = "last, end, whole = tl.full((block_q,), N_k - 1, tl.int32), N_k, N_k // block_k * block_k"
LSE = 'lse = tl.where(l == 0.0, float("-inf"), (m + tl.log2(l_or_1)) * 0.6931471805599453)'
SCALE = "scale = scale * 1.4426950408889634"
STORE = "o_desc.store([b, h, i * block_q, 0], O_i.reshape(1, 1, block_q, d))"
O_DESC = "tiles_of(o, block_q), lse"
HIDE = 'S = tl.where(keys[None, :] <= last[:, None], S, float("-inf"))'
MASKED = f"    if masked:\n        keys = start + tl.arange(0, block_k)\n        {HIDE}\n"
MAX = "    m_new = tl.maximum(m, tl.max(S, 1))\n"
GRID = "[(triton.cdiv(N_q, block_q), B * H_q)]"
FLAT_O = "HostDescriptor(o, [B * H_q * N_q, d], [d, 1], [block_q, d]), lse"


def mutant(fault: str, *patch: tuple[str, str], note: str = "") -> Mutant:
    return Mutant(fault, "solution", patch, "07.descriptors", note)


MUTANTS = (
    mutant("next-head-written", (O_DESC, FLAT_O), (STORE, "o_desc.store([(b * H_q + h) * N_q + i * block_q, 0], O_i)"), note="the tutorial's two-dimensional descriptors"),
    mutant("next-head-written", (O_DESC, FLAT_O), (STORE, "row = (b * H_q + h) * N_q + i * block_q\n    o_desc.store([row, 0], O_i)")),
    mutant("tail-mask-missing", (START, START.replace("N_k - 1", "N_k + block_k")), note="zeros past the end are scores too"),
    mutant("tail-mask-missing", (START, START.replace("N_k // block_k * block_k", "N_k")), note="the first loop walks the tail, too"),
    mutant("finite-mask-value", (HIDE, HIDE.replace('float("-inf")', "-1e4")), note="in base 2, as the scores are"),
    mutant("finite-mask-value", (HIDE, HIDE.replace('float("-inf")', "-65504.0")), note="the lowest half"),
    mutant("finite-mask-value", (HIDE, HIDE.replace('float("-inf")', "-1e6"))),
    mutant("finite-mask-value", (HIDE, "S += tl.where(keys[None, :] <= last[:, None], 0.0, -1e9)"), note="a bias"),
    mutant("mask-after-max", (MASKED + MAX, MAX + MASKED)),
    mutant("mask-skipped", (f"        {WHOLE}\n", ""), note="the first loop walks all whole tiles"),
    mutant("mask-skipped", (WHOLE, WHOLE.replace("offset + 1", "1")), note="shows where the offset is negative"),
    mutant("mask-skipped", (WHOLE, "whole = tl.minimum(whole, end // block_k * block_k)"), note="up to the last row's last key"),
    mutant("mask-skipped", (WHOLE, WHOLE.replace("tl.maximum(0, i * block_q + offset + 1) // block_k", "tl.cdiv(tl.maximum(0, i * block_q + offset + 1), block_k)")), note="rounded up"),
    mutant("causal-top-left", (LAST, "last = tl.minimum(last, rows)")),
    mutant("causal-top-left", (LAST, "last = tl.minimum(last, rows)"), (END, END.replace(" + offset", "")), note="the loop's end, too"),
    mutant("causal-top-left", (LAST, "last = tl.minimum(last, rows)"), (END, END.replace(" + offset", "")), (WHOLE, WHOLE.replace("offset + 1", "1")), note="nowhere an offset"),
    mutant("causal-offset-sign", (LAST, "last = tl.minimum(last, rows - offset)")),
    mutant("causal-local-index", (LAST, "last = tl.minimum(last, tl.arange(0, block_q) + offset)")),
    mutant("causal-ignored", (f"        {LAST}\n", ""), note="the loops end where they should"),
    mutant("causal-strict", (LAST, "last = tl.minimum(last, rows + offset - 1)")),
    mutant("causal-strict", (LAST, "last = tl.minimum(last, rows + offset - 1)"), (WHOLE, WHOLE.replace("offset + 1", "offset"))),
    mutant("causal-bound-short", (END, "end = tl.minimum(N_k, tl.maximum(0, i * block_q + offset + 1))"), note="the first row's last key"),
    mutant("causal-bound-short", (END, END.replace(" + offset", ""))),
    mutant("rescale-denominator-only", (ACC, "acc = acc\n")),
    mutant("empty-row-nan", (FINITE, "m_finite = m_new")),
    mutant("scale-argument-ignored", (SCALE, "scale = 1.4426950408889634 / tl.sqrt(float(d) * 1.0)"), note="1 / sqrt(d), whatever the caller says"),
    mutant("lse-base-2", (LSE, LSE.replace(" * 0.6931471805599453", ""))),
    mutant("gqa-head-map", *((f"k_desc, v_desc, b, h // group, start, last, N_k, scale, {m}", f"k_desc, v_desc, b, h % (H_q // group), start, last, N_k, scale, {m}") for m in ("True", "False"))),
    mutant("offset-forgotten", ("k_desc.load([b, g, start, 0])", "k_desc.load([0, g, start, 0])"), note="every batch has the first one's keys"),
    mutant("query-tail-lost", (GRID, "[(max(1, N_q // block_q), B * H_q)]")),
)  # fmt: skip

TWO_FAULTS = (
    mutant("causal-bound-short + mask-skipped", (END, END.replace(" + offset", "")), (WHOLE, WHOLE.replace("offset + 1", "1")), note="both ends without the offset"),
    mutant("finite-mask-value + causal-strict", (HIDE, HIDE.replace('float("-inf")', "-1e4")), (LAST, "last = tl.minimum(last, rows + offset - 1)")),
)  # fmt: skip

EQUIVALENT = (
    mutant("mask-skipped", (WHOLE, WHOLE.replace("offset + 1", "offset")), note="one key less is whole: where that costs a tile, it is masked and hides nothing"),
    mutant("mask-skipped", (WHOLE, "whole = 0"), note="every tile masked"),
)  # fmt: skip
