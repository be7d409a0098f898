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
GRID = "[(triton.cdiv(N_q, block_q), B * H_q)]"
FLAT_O = "HostDescriptor(o, [B * H_q * N_q, d], [d, 1], [block_q, d]), lse"


def mutant(fault: str, *patch: tuple[str, str], note: str = "") -> Mutant:
    return Mutant(fault, "solution", patch, "07.descriptors", note)


MUTANTS = (
    mutant("next-head-written", (O_DESC, FLAT_O), (STORE, "o_desc.store([(b * H_q + h) * N_q + i * block_q, 0], O_i)"), note="the tutorial's two-dimensional descriptors"),
    mutant("next-head-written", (O_DESC, FLAT_O), (STORE, "row = (b * H_q + h) * N_q + i * block_q\n    o_desc.store([row, 0], O_i)")),
    mutant("tail-mask-missing", (START, START.replace("N_k - 1", "N_k + block_k")), note="zeros past the end are scores too"),
    mutant("causal-strict", (LAST, "last = tl.minimum(last, rows + offset - 1)"), (WHOLE, WHOLE.replace("offset + 1", "offset"))),
    mutant("causal-bound-short", (END, "end = tl.minimum(N_k, tl.maximum(0, i * block_q + offset + 1))"), note="the first row's last key"),
    mutant("rescale-denominator-only", (ACC, "acc = acc\n")),
    mutant("empty-row-nan", (FINITE, "m_finite = m_new")),
    mutant("scale-argument-ignored", (SCALE, "scale = 1.4426950408889634 / tl.sqrt(float(d) * 1.0)"), note="1 / sqrt(d), whatever the caller says"),
    mutant("lse-base-2", (LSE, LSE.replace(" * 0.6931471805599453", ""))),
    mutant("gqa-head-map", *((f"k_desc, v_desc, b, h // group, start, last, N_k, scale, {m}", f"k_desc, v_desc, b, h % (H_q // group), start, last, N_k, scale, {m}") for m in ("True", "False"))),
    mutant("query-tail-lost", (GRID, "[(max(1, N_q // block_q), B * H_q)]")),
)  # fmt: skip
