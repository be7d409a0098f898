"""Planted faults of lab 05: bytes and limits miscounted, and the fused forward with tiles to choose."""

# ruff: noqa: E501  one mutant a line

from __future__ import annotations

from tests.labs.mutant import Mutant

INF = 'float("-inf")'


def mutant(
    exercise: str, fault: str, *patch: tuple[str, str], base: str = "solution", note: str = "", unnamed: str = ""
) -> Mutant:
    return Mutant(fault, base, patch, f"05.{exercise}", note, unnamed)


# ---- 05.working_set

INPUTS = "inputs = block_q * d + block_k * (d + d_v)"
SUMS = "sums = block_q * (block_k + d_v)"
BYTES = "return itemsize * inputs + 4 * sums"


def bytes_(fault: str, old: str, new: str, note: str = "") -> Mutant:
    return mutant("working_set", fault, (old, new), note=note)


WORKING_SET = (
    bytes_("v-forgotten", "block_k * (d + d_v)", "block_k * d", "only K"),
    bytes_("v-forgotten", INPUTS, "inputs = (block_q * d) + (block_k * d_v)", "only V"),
    bytes_("elements-for-bytes", BYTES, "return inputs + sums"),
    bytes_("elements-for-bytes", BYTES, "return sum([block_q * d, block_k * d, block_k * d_v, sums])"),
    bytes_("itemsize-ignored", BYTES, "return 2 * inputs + 4 * sums", "always fp16"),
    bytes_("itemsize-ignored", BYTES, "return 4 * (inputs + sums)", "all in fp32"),
    bytes_("sums-in-input-precision", BYTES, "return itemsize * (inputs + sums)"),
    bytes_("sums-in-input-precision", BYTES, "return itemsize * inputs + 2 * sums", "sums in fp16"),
    bytes_("scores-forgotten", SUMS, "sums = block_q * d_v"),
    bytes_("scores-forgotten", BYTES, "return itemsize * inputs + 4 * sums - 4 * block_q * block_k"),
    bytes_("output-forgotten", SUMS, "sums = block_q * block_k"),
    bytes_("output-forgotten", "(block_k + d_v)\n", "(block_k)\n"),
    bytes_("queries-forgotten", INPUTS, "inputs = block_k * (d + d_v)"),
    bytes_("queries-forgotten", "block_q * d +", "0 +"),
    bytes_("d-for-d_v", INPUTS, f"d_v = d\n    {INPUTS}"),
    bytes_("d-for-d_v", BYTES, "return itemsize * d * (block_q + 2 * block_k) + 4 * block_q * (block_k + d)"),
    bytes_("tiles-swapped", INPUTS, f"block_q, block_k = block_k, block_q\n    {INPUTS}"),
    bytes_("tiles-swapped", BYTES, "return itemsize * (block_k * d + block_q * (d + d_v)) + 4 * block_k * (block_q + d_v)"),
    bytes_("tiles-swapped", INPUTS, "inputs = block_q * (d + d + d_v)", "as if the tiles were square"),
    bytes_("weights-counted-too", BYTES, "return itemsize * (inputs + block_q * block_k) + 4 * sums"),
    bytes_("weights-counted-too", SUMS, "sums = block_q * (2 * block_k + d_v)", "P in fp32"),
    bytes_("chapters-formula", BYTES, "return 2 * d * (block_q + 2 * block_k) + 4 * block_q * block_k + 4 * block_q * d"),
    bytes_("chapters-formula", INPUTS, "itemsize, d_v = 2, d\n    inputs = block_q * d + 2 * block_k * d"),
    bytes_("kib-for-bytes", BYTES, "return (itemsize * inputs + 4 * sums) / 1024"),
    bytes_("kib-for-bytes", BYTES, "return (itemsize * inputs + 4 * sums) / 1000"),
)  # fmt: skip

# ---- 05.blocks_per_sm

UNIT = "a_warp = -(-32 * registers // 256) * 256"
LIMIT = 'if shared > sm["block_shared"] or registers > sm["thread_registers"]:\n        return 0'
OWN = '    if a_warp * -(-warps // 4) * 4 > sm["block_registers"]:\n        return 0\n'
TAKEN = 'taken = -(-(shared + sm["system_shared"]) // 128) * 128'
BY_REGISTERS = 'sm["registers"] // 4 // a_warp * 4 // warps,'


def blocks(fault: str, *patch: tuple[str, str], note: str = "") -> Mutant:
    return mutant("blocks_per_sm", fault, *patch, note=note)


BLOCKS = (
    blocks("register-limit-forgotten", (OWN, ""), note="a block's"),
    blocks("register-limit-forgotten", (OWN, ""), (' or registers > sm["thread_registers"]', ""), note="a thread's and a block's"),
    blocks("register-limit-forgotten", (' or registers > sm["thread_registers"]', ""), note="a thread's"),
    blocks("register-limit-forgotten", (OWN, OWN.replace("-(-warps // 4) * 4", "warps")), note="not rounded up to the quarters"),
    blocks("registers-not-counted", (OWN, ""), (' or registers > sm["thread_registers"]', ""), (BY_REGISTERS, 'sm["blocks"],')),
    blocks("registers-not-counted", (UNIT, "a_warp = registers"), note="one thread of each warp"),
    blocks("registers-not-counted", (OWN, ""), (BY_REGISTERS, 'sm["registers"] // registers // warps,'), note="one thread of each warp"),
    blocks("warps-forgotten", ('        sm["warps"] // warps,\n', "")),
    blocks("warps-forgotten", ('sm["warps"] // warps,', 'sm["warps"],'), note="as if a block were one warp"),
    blocks("blocks-forgotten", ('        sm["blocks"],\n', "")),
    blocks("blocks-forgotten", ('        sm["blocks"],\n', '        sm["warps"],\n')),
    blocks("static-48-kib", ('shared > sm["block_shared"]', "shared > 48 * 1024")),
    blocks("static-48-kib", (UNIT, f'if shared > 49152:\n        return 0\n    {UNIT}')),
    blocks("block-shared-forgotten", ('shared > sm["block_shared"]', 'shared > sm["shared"]')),
    blocks("block-shared-forgotten", ('shared > sm["block_shared"] or ', "")),
    blocks("system-kib-forgotten", (TAKEN, "taken = -(-shared // 128) * 128")),
    blocks("system-kib-forgotten", ('(shared + sm["system_shared"])', "(shared + 0)")),
    blocks("register-unit-forgotten", (UNIT, "a_warp = 32 * registers")),
    blocks("register-unit-forgotten", (UNIT, "a_warp = 32 * max(1, registers)")),
    blocks("quarters-forgotten", (BY_REGISTERS, 'sm["registers"] // (a_warp * warps),')),
    blocks("quarters-forgotten", (BY_REGISTERS, 'sm["registers"] // a_warp // warps,')),
    blocks("part-of-a-block", ('sm["warps"] // warps,', '-(-sm["warps"] // warps),'), ('sm["shared"] // taken if', '-(-sm["shared"] // taken) if'), (BY_REGISTERS, '-(-(sm["registers"] // 4 // a_warp * 4) // warps),')),
    blocks("part-of-a-block", ("return min(\n", "import math\n\n    return min(\n"), ('sm["warps"] // warps,', 'math.ceil(sm["warps"] / warps),'), ('sm["shared"] // taken if', 'math.ceil(sm["shared"] / taken) if'), (BY_REGISTERS, 'math.ceil(sm["registers"] // 4 // a_warp * 4 / warps),')),
)  # fmt: skip

# ---- 05.forward: the bank is lab 03's, where each fault is planted twice; here a sample

L_SUM = "l = alpha * l + tl.sum(P, 1)"
HIDE = f"S = tl.where(keys[None, :] < N_k, S, {INF})"
LOOP = "for start in range(0, N_k, block_k):"
LOAD_K = "K_j = tl.load(k_ptr + keys[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < N_k, other=0.0)"
LOAD_V = "V_j = tl.load(v_ptr + keys[:, None] * stride_vn + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)"
STORE_O = "tl.store(o_ptr + rows[:, None] * stride_on + cols_v[None, :], O_i, mask=rows[:, None] < N_q)"
PRODUCT = 'tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale'
GRID = "grid = (triton.cdiv(N_q, block_q), B * H)"

OPTIONS = "num_warps=warps, num_stages=stages"


def forward(fault: str, *patch: tuple[str, str], note: str = "") -> Mutant:
    return mutant("forward", fault, *patch, note=note)


FORWARD = (
    forward("rescale-numerator-only", (L_SUM, "l += tl.sum(P, 1)")),
    forward("tail-mask-missing", (f"        {HIDE}\n", "")),
    forward("scale-twice", ("d**-0.5", "1.0 / d")),
    forward("borrowed-stride", ("*v.stride()[:3]", "*k.stride()[:3]")),
    forward("borrowed-stride", ("*k.stride()[:3]", "*q.stride()[:3]")),
    forward("offset-forgotten", *((f"{x}_ptr += b * stride_{x}b + h * stride_{x}h", f"{x}_ptr += b * stride_{x}b") for x in "kv"), note="one K/V head for all"),
    forward("offset-forgotten", ("q_ptr += b * stride_qb + h", "q_ptr += h")),
    forward("key-tail-lost", (LOOP, "for start in range(0, N_k // block_k * block_k, block_k):")),
    forward("tail-load-unmasked", (LOAD_K, LOAD_K.split(", mask")[0] + ")")),
    forward("tail-store-unmasked", (STORE_O, STORE_O.split(", mask")[0] + ")")),
    forward("other-missing", (LOAD_V, LOAD_V.replace(", other=0.0", ""))),
    forward("query-tail-lost", (GRID, "grid = (max(1, N_q // block_q), B * H)")),
    forward("warps-ignored", ("num_warps=warps", "num_warps=4")),
    forward("warps-ignored", ("num_warps=warps, ", ""), note="Triton's default"),
    forward("stages-ignored", ("num_stages=stages", "num_stages=2")),
    forward("stages-ignored", (OPTIONS, "num_warps=warps"), note="Triton's default"),
)  # fmt: skip

# ---- 05.tuned: its mistakes have no wrong outputs; the choices themselves are judged in tests/check/test_choices.py

MUTANTS = WORKING_SET + BLOCKS + FORWARD

TWO_FAULTS = (
    mutant("working_set", "v-forgotten + sums-in-input-precision", ("block_k * (d + d_v)", "block_k * d"), (BYTES, "return itemsize * (inputs + sums)")),
    mutant("working_set", "scores-forgotten + itemsize-ignored", (SUMS, "sums = block_q * d_v"), (BYTES, "return 2 * inputs + 4 * sums")),
    mutant("blocks_per_sm", "register-unit-forgotten + system-kib-forgotten", (UNIT, "a_warp = 32 * registers"), (TAKEN, "taken = -(-shared // 128) * 128")),
    mutant("forward", "warps-ignored + stages-ignored", (OPTIONS, "num_warps=4, num_stages=3")),
    mutant("forward", "rescale-numerator-only + scale-missing", (L_SUM, "l += tl.sum(P, 1)"), (PRODUCT, PRODUCT.removesuffix(" * scale"))),
)  # fmt: skip

EQUIVALENT = (
    blocks("register-unit-forgotten", (TAKEN, 'taken = shared + sm["system_shared"]'), note="shared memory in units of 128 bytes: all sizes here are"),
    forward("other-missing", (LOAD_K, LOAD_K.replace(", other=0.0", "")), note="scores of keys past the end are overwritten with -inf"),
)  # fmt: skip
