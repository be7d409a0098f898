"""Lab 05: tile budgets. Exercises 05.working_set, 05.blocks_per_sm, 05.forward and 05.tuned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import lru_cache

import numpy as np

from flashkit.exercises import flash_forward, timed
from flashkit.exercises.contract import WITH_LAUNCH, Case, Exercise, Fault, Tuning
from flashkit.exercises.flash_forward import CAUSAL_ONLY, attention_case
from flashkit.exercises.formula import formula
from flashkit.exercises.forward_faults import Variant, bank
from flashkit.exercises.inputs import attention_inputs
from flashkit.instruments.resources import ARCHITECTURES
from flashkit.runtime.call import Argument, Call, Returned
from reference import occupancy, tile_budget, traffic

# ---- (a) what a tile needs, and how many blocks an SM holds ----------------------------------------------


def _working_set(
    parts="qkvso", of_inputs=None, of_sums=4, width=None, swapped=False, square=False, weights=lambda size: 0, times=1.0
):
    """Bytes of some of the tiles; ``of_inputs`` and ``of_sums`` bytes an element instead of the right ones.

    ``square``: K and V have block_q rows; ``weights``: bytes an element of P, counted beside S.
    """

    def bytes(block_q, block_k, d, d_v, itemsize):
        block_q, block_k = (block_k, block_q) if swapped else (block_q, block_k)
        d_v, keys = d if width == "d" else d_v, block_q if square else block_k
        size, sums = of_inputs or itemsize, of_sums or itemsize
        each = {"q": size * block_q * d, "k": size * keys * d, "v": size * keys * d_v,
                "s": (sums + weights(itemsize)) * block_q * block_k, "o": sums * block_q * d_v}  # fmt: skip
        return times * sum(each[part] for part in parts)

    return bytes


def _tile_case(why, block_q, block_k, d, d_v, itemsize=2) -> Case:
    return Case(why, {"block_q": block_q, "block_k": block_k, "d": d, "d_v": d_v, "itemsize": itemsize})


TILE_CASES = (
    _tile_case("the chapter's example", 64, 64, 128, 128),
    _tile_case("twice the rows", 128, 64, 128, 128),
    _tile_case("V is narrower than K", 64, 32, 128, 64),
    _tile_case("fp32 inputs", 32, 64, 64, 64, itemsize=4),
    _tile_case("8-bit inputs", 128, 128, 64, 128, itemsize=1),
)


def _draw_tiles(seed: int) -> tuple[Case, ...]:
    rng = np.random.default_rng(seed)
    sides, widths = [16, 32, 64, 128, 256], [16, 32, 64, 128, 256]
    drawn = [(*rng.permutation(sides)[:2], *rng.permutation(widths)[:2]) for _ in range(4)]
    return tuple(
        _tile_case("other tiles", *map(int, sizes), itemsize=size)
        for sizes, size in zip(drawn, (2, 4, 1, 2), strict=True)
    )


WORKING_SET = formula(
    "05.working_set",
    lambda case: tile_budget.working_set(**case.sizes).total,
    TILE_CASES,
    (
        Fault("v-forgotten", "only one of K and V is counted", "A key tile brings its values along.",
              (_working_set("qkso"), _working_set("qvso"))),
        Fault("elements-for-bytes", "elements are counted, not bytes", "How many bytes is one element of each tile?",
              (_working_set(of_inputs=1, of_sums=1),)),
        Fault("itemsize-ignored", "the inputs' itemsize is not the argument's",
              "Q, K and V have `itemsize` bytes an element.",
              (_working_set(of_inputs=2), _working_set(of_inputs=4), _working_set(of_inputs=1))),
        Fault("sums-in-input-precision", "S or O is counted in the inputs' precision",
              "S and O are sums, kept in fp32 whatever the inputs are.",
              (_working_set(of_sums=0), _working_set(of_sums=2))),
        Fault("scores-forgotten", "the tile of scores is not counted", "Where do S and P live meanwhile?",
              (_working_set("qkvo"),)),
        Fault("output-forgotten", "the output's accumulator is not counted", "What does a program carry along?",
              (_working_set("qkvs"),)),
        Fault("queries-forgotten", "the query tile is not counted", "Q_i stays on chip for the whole walk.",
              (_working_set("kvso"),)),
        Fault("d-for-d_v", "V or O is counted with d columns", "V and O have d_v columns.",
              (_working_set(width="d"),)),
        Fault("tiles-swapped", "a tile is counted with block_q rows where it has block_k, or the reverse",
              "Which of the tensors have block_q rows?",
              (_working_set(swapped=True), _working_set(square=True))),
        Fault("weights-counted-too", "P is counted beside S", "P takes the place of S: exp(S - m) is written over it.",
              (_working_set(weights=lambda size: size), _working_set(weights=lambda size: 4))),
        Fault("chapters-formula", "the chapter's formula is used, which is for fp16 and d_v = d",
              "Here V and O have d_v columns, and Q, K and V have `itemsize` bytes an element.",
              (_working_set(of_inputs=2, width="d"),)),
        Fault("kib-for-bytes", "the answer is in KiB or in thousands of bytes", "Bytes are asked for.",
              (_working_set(times=1 / 1024), _working_set(times=1e-3))),
    ),
    _draw_tiles,
    title="Bytes of one query tile's work",
    points=5,
    minutes=10,
    difficulty=1,
    signature="working_set(block_q, block_k, d, d_v, itemsize) -> int    # bytes of Q_i, K_j, V_j, and S, O in fp32",
    hints=(
        "List the five tiles with their shapes: Q_i, K_j, V_j, S, O.",
        "Q_i is (block_q, d), K_j (block_k, d), V_j (block_k, d_v), S (block_q, block_k), O (block_q, d_v).",
        "The first three have itemsize bytes an element, S and O have 4.",
    ),
)  # fmt: skip


def _blocks(
    unit=256,
    lanes=32,
    quarters=True,
    own=("thread", "block"),
    share=True,
    skip=(),
    system=None,
    most=min,
    whole=lambda x: x // 1,
):
    """Blocks an SM with some of the rules changed; without changes it is :func:`reference.occupancy.occupancy`.

    ``own``: limits of a single block that are looked at; ``share``: its warps are rounded up to 4 for that; ``skip``:
    limits of an SM that are not looked at; ``whole``: of a part of a block.
    """

    def blocks(warps, registers, shared, arch):
        limits = occupancy.LIMITS[arch]
        kept = occupancy.system_shared(arch) if system is None else system
        a_warp = -(-lanes * registers // unit) * unit
        if shared > most(limits.block_shared, limits.shared):
            return 0
        if "thread" in own and registers > limits.thread_registers:
            return 0
        if "block" in own and a_warp * (-(-warps // 4) * 4 if share else warps) > limits.block_registers:
            return 0
        held = {"warps": limits.warps / warps, "blocks": limits.blocks}
        if shared + kept:
            held["shared"] = limits.shared / (-(-(shared + kept) // 128) * 128)
        held["registers"] = (limits.registers // 4 // a_warp * 4 if quarters else limits.registers / a_warp) / warps
        return whole(min(value for name, value in held.items() if name not in skip))

    return blocks


def _sm(arch: int) -> dict[str, int]:
    """An SM's limits as the student's function gets them."""
    return {**asdict(occupancy.LIMITS[arch]), "system_shared": occupancy.system_shared(arch)}


def _sm_case(why, warps, registers, kib, arch) -> Case:
    return Case(why, {"warps": warps, "registers": registers, "shared": int(kib * 1024), "arch": arch})


SM_CASES = (
    _sm_case("128 x 64 on Hopper", 4, 255, 96, 90),
    _sm_case("more than 48 KiB a block", 4, 96, 56, 90),
    _sm_case("all that a block may have", 8, 128, 99, 86),
    _sm_case("more than a block may have", 4, 128, 100, 89),
    _sm_case("registers alone", 8, 255, 0, 90),
    _sm_case("NVIDIA's example: 10 warps of 37 registers", 10, 37, 0, 80),
    _sm_case("33 registers are as many as 40", 8, 33, 0, 80),
    _sm_case("9 warps of 45 registers", 9, 45, 0, 80),
    _sm_case("the system's kibibyte", 4, 32, 41, 80),
    _sm_case("warps bind", 32, 16, 8, 120),
    _sm_case("blocks bind", 1, 16, 0.5, 89),
    _sm_case("a GPU whose block has half of the registers", 8, 168, 8, 53),
    _sm_case("5 warps are held against a block's registers as 8", 5, 168, 8, 53),
    _sm_case("shared memory that one block may not have alone", 4, 32, 56, 53),
    _sm_case("one register too many", 4, 256, 16, 100),
    _sm_case("an older GPU keeps nothing back", 4, 64, 32, 75),
)


def _draw_blocks(seed: int) -> tuple[Case, ...]:
    """The public kinds, with other counts wherever that keeps the kind."""
    rng = np.random.default_rng(seed)
    warps, tight = int(rng.choice([10, 17, 25])), int(rng.choice([33, 34, 35]))
    return (
        _sm_case("registers and shared memory", 4, int(rng.integers(120, 250)), int(rng.integers(50, 110)), 90),
        _sm_case("more than 48 KiB a block", 4, 64, int(rng.integers(49, 70)), 100),
        _sm_case("more than a block may have", 4, 64, int(rng.integers(164, 200)), 80),
        _sm_case("registers alone", 8, int(rng.integers(200, 255)), 0, 120),
        _sm_case("warps that fill no quarter", warps, 37, 0, 80),
        _sm_case("registers in units of a warp", 8, tight, 0, 80),
        _sm_case("9 warps of 45 registers", 9, 45, 0, 90),
        _sm_case("warps bind", int(rng.choice([16, 24, 32])), 16, 4, 120),
        _sm_case("the system's kibibyte", 4, int(rng.integers(16, 40)), 41, 80),
        _sm_case("a GPU whose block has half of the registers", 8, int(rng.integers(136, 168)), 4, 53),
        _sm_case("shared memory that one block may not have alone", 4, 32, int(rng.integers(49, 64)), 53),
        _sm_case("5 warps are held against a block's registers as 8", 5, int(rng.integers(130, 168)), 4, 53),
        _sm_case("too many registers", 4, int(rng.integers(256, 300)), 16, 90),
        _sm_case("blocks bind", 1, int(rng.integers(8, 24)), 0.5, 86),
    )


BLOCKS_PER_SM = formula(
    "05.blocks_per_sm",
    lambda case: occupancy.occupancy(*(case.sizes[name] for name in ("arch", "warps", "registers", "shared"))).blocks,
    SM_CASES,
    (
        Fault("register-limit-forgotten", "a block's registers are not held against its own limits",
              "Would this block run on its own? Its threads and the block have limits.", 
              (_blocks(own=()), _blocks(own=("thread",)), _blocks(own=("block",)), _blocks(share=False))),
        Fault("registers-not-counted", "registers are not counted, or not for each of a warp's 32 threads",
              "A block takes registers for each of its 32 x warps threads.",
              (_blocks(own=(), skip=("registers",)), _blocks(own=("thread",), skip=("registers",)),
               _blocks(unit=1, lanes=1), _blocks(unit=1, lanes=1, own=("thread",)), _blocks(unit=1, lanes=1, own=()))),
        Fault("warps-forgotten", "the SM's slots for warps do not limit the number of blocks",
              "How many warps does an SM hold, whatever they need?", (_blocks(skip=("warps",)),)),
        Fault("blocks-forgotten", "the largest number of blocks an SM is not looked at",
              "Small blocks have a limit of their own: sm['blocks'].", (_blocks(skip=("blocks",)),)),
        Fault("static-48-kib", "a block is refused more than 48 KiB of shared memory",
              "48 KiB is the limit of what a kernel declares; what it asks for at launch may be sm['block_shared'].",
              (_blocks(most=lambda block, sm: 48 * 1024),)),
        Fault("block-shared-forgotten", "the largest shared memory of one block is not looked at",
              "Can a block have all of the SM's shared memory?", (_blocks(most=max),)),
        Fault("system-kib-forgotten", "the system's own shared memory is not added to each block's",
              "sm['system_shared'] bytes go to the system for each block.", (_blocks(system=0),)),
        Fault("register-unit-forgotten", "a warp's registers are not rounded up to 256",
              "Registers are handed out to a warp in units of 256.", (_blocks(unit=1), _blocks(unit=32))),
        Fault("quarters-forgotten", "the SM's registers are taken for one pool",
              "A warp lives in one quarter of the SM: how many fit into a quarter?", (_blocks(quarters=False),)),
        Fault("part-of-a-block", "a part of a block is rounded up to a whole one",
              "A block is on the SM whole, or not at all.", (_blocks(whole=lambda x: -(-x // 1)),)),
    ),
    _draw_blocks,
    arguments=lambda case: {**{n: v for n, v in case.sizes.items() if n != "arch"}, "sm": _sm(case.sizes["arch"])},
    returns="blocks",
    title="How many blocks an SM holds",
    points=15,
    minutes=25,
    difficulty=2,
    signature="blocks_per_sm(warps, registers, shared, sm) -> int    # sm: a dict of limits; 0 if not even one fits",
    hints=(
        "Four limits, each with a number of blocks; the smallest counts. First ask whether one block fits at all.",
        "A warp takes 32 * registers, rounded up to 256, of its quarter of the SM's registers.",
        "Shared memory: shared + system_shared, rounded up to 128, goes how often into sm['shared']?",
    ),
)  # fmt: skip

# ---- (b) a fused forward whose tiles, warps and stages the caller chooses ---------------------------------


def _own_heads(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Where a query head has a K/V head of its own, K and V without theirs are a forgotten offset, not a wrong map."""
    both = (Variant(first=("kv", 1)),)
    return tuple(replace(f, variants=f.variants + both) if f.name == "offset-forgotten" else f for f in faults)


OPTIONS = ("warps", "stages")
LAUNCHES = (  # large tiles, full of rows, and long loops: a kernel may fit its launch to small ones
    ("four warps, two stages", {"warps": 4, "stages": 2}),
    ("the same with eight warps", {"warps": 8, "stages": 2}),
    ("the same with three stages", {"warps": 4, "stages": 3}),
)


def _with_launch_options(exercise: Exercise) -> Exercise:
    """The same exercise, its function called with ``warps`` and ``stages`` too, and three cases that differ in them."""
    plain = exercise.call

    def with_launches(cases: Iterable[Case], seed: int) -> tuple[Case, ...]:
        usual = (replace(case, sizes={**case.sizes, "warps": 4, "stages": 2 + case.seed % 2}) for case in cases)
        large = replace(attention_case("", 100, 200, 128, 64), seed=seed)
        return (*usual, *(replace(large, why=why, sizes={**large.sizes, **options}) for why, options in LAUNCHES))

    def call(case: Case) -> Call:
        asked = plain(case)
        return replace(asked, options={**asked.options, **{name: case.sizes[name] for name in OPTIONS}})

    def budget(case: Case) -> dict[str, int]:
        rows = case.sizes["B"] * case.sizes["H_q"] * case.sizes["N_q"]
        return {**exercise.budget(case), "*": 4 * rows}  # the lse of a forward that was pasted from lab 03

    return replace(
        exercise,
        call=call,
        budget=budget,
        cases=with_launches(exercise.cases, 150),
        draw=lambda seed: with_launches(exercise.draw(seed), seed),
        launch_options=OPTIONS,
    )


FORWARD = _with_launch_options(
    flash_forward.exercise(
        "05.forward",
        dims=4,
        returns=("o",),
        options=("block_q", "block_k"),
        title="A fused forward with tiles, warps and stages to choose",
        points=50,
        shares=WITH_LAUNCH,
        minutes=40,
        difficulty=3,
        signature=(
            "tiled_forward(q, k, v, block_q, block_k, warps, stages) -> o"
            "    # q (B, H, N_q, d), k (B, H, N_k, d), v (B, H, N_k, d_v), o (B, H, N_q, d_v); no mask, scale 1/sqrt(d)"
        ),
        cases=(
            attention_case("tiles fit exactly", 32, 32, 16, 32, B=2, H_q=2, H_kv=2),
            attention_case("tails on both sides, d_v != d", 37, 53, 16, 32, d_v=32, H_q=2, H_kv=2, layout="uneven"),
            attention_case("one query, one key", 1, 1, 16, 16),
            attention_case("sequence shorter than a tile", 7, 11, 32, 16),
            attention_case("every tile raises the maximum", 19, 61, 32, 16, values="rising"),
            attention_case("every tile lowers the maximum", 19, 61, 32, 16, values="falling"),
            attention_case("scores that overflow exp", 23, 47, 16, 16, values="large"),
            attention_case("all scores far below zero", 17, 43, 16, 32, values="negative"),
            attention_case("the last key outweighs all others", 11, 45, 16, 16, values="peak"),
            attention_case("every score below any finite mask", 17, 43, 16, 32, values="trap"),
            attention_case("heads as a model hands them over", 21, 35, 32, 16, B=2, H_q=2, H_kv=2, layout="bshd"),
            attention_case("each tensor laid out its own way", 18, 18, 16, 16, H_q=3, H_kv=3, layout="mixed"),
            attention_case("half precision, gaps between the rows", 41, 71, 32, 32, d=32, d_v=16, B=2, H_q=2, H_kv=2,
                           dtype="fp16", layout="padded"),
        ),
        faults=_own_heads(bank(
            "gqa-head-map", "scale-argument-ignored", "int32-overflow", "lse-base-2", "lse-without-m",
            "low-precision-sum", "mask-after-max", *CAUSAL_ONLY,
        )),
        hints=(
            "It is 03.heads without a mask, groups and lse: paste that kernel and take away what is not asked for.",
            "The tile sizes are tl.constexpr parameters; warps and stages are launch options, not parameters.",
            "kernel[grid](..., block_q=block_q, block_k=block_k, num_warps=warps, num_stages=stages).",
        ),
    )
)  # fmt: skip

# ---- ... and tuned ---------------------------------------------------------------------------------------

CANDIDATES = tuple(
    (block_q, block_k, warps, stages)
    for block_q in (64, 128)
    for block_k in (32, 64, 128)
    for warps in (4, 8)
    for stages in (2, 3)
)
TUNING = Tuning(
    shape=traffic.Shape(4096, 4096, 128, 128, 64, 64, B=4, H_q=8, H_kv=8),
    candidates=CANDIDATES,
    least={80: 2.839e-3, 86: 6.256e-3, 89: 2.589e-3, 90: 0.676e-3, 100: 0.548e-3, 120: 2.362e-3},  # triton 3.7.1
    shortlist={
        80: ((128, 128, 8, 3), (128, 64, 8, 3), (64, 32, 4, 3)),
        86: ((128, 64, 8, 3), (128, 128, 8, 2), (64, 32, 4, 2)),
        89: ((128, 128, 8, 2), (128, 64, 8, 3), (64, 32, 4, 2)),
        90: ((64, 64, 4, 3), (128, 128, 8, 3), (64, 32, 4, 2)),
        100: ((128, 128, 8, 3), (128, 32, 8, 3), (64, 64, 4, 3)),
        120: ((128, 64, 8, 3), (128, 32, 8, 3), (64, 32, 4, 2)),
    },
    slack=0.1,
)


def _tuned_case(arch: int, N_q: int = 64, N_k: int = 512, seed: int = 500) -> Case:
    """Four tiles of 128 keys: a kernel to which N_k is a constant keeps its loop when it is compiled."""
    sizes = {"B": 1, "H_q": 2, "H_kv": 2, "N_q": N_q, "N_k": N_k, "d": 128, "d_v": 128}
    return Case(f"your choice for sm_{arch}", sizes, {"arch": arch}, dtype="fp16", seed=seed)


def _attention(case: Case) -> Case:
    """The case as plain attention in tiles of 64: the same for all architectures."""
    s = case.sizes
    plain = attention_case("tuned", s["N_q"], s["N_k"], 64, 64, d=s["d"], H_q=s["H_q"], H_kv=s["H_kv"], dtype="fp16")
    return replace(plain, seed=case.seed)


@lru_cache(maxsize=8)
def _reference(plain: Case) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """The right output and those of honest runs."""
    return _only(flash_forward.oracle(plain)), [_only(run) for run in flash_forward.honest(plain)]


def _only(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"o": outputs["o"]}


def _tuned_call(case: Case) -> Call:
    tensors = dict(zip("qkv", attention_inputs(case), strict=True))
    shape = (case.sizes["B"], case.sizes["H_q"], case.sizes["N_q"], case.sizes["d_v"])
    return Call(
        {n: Argument(x, case.dtype) for n, x in tensors.items()}, dict(case.options), (Returned("o", shape, "fp16"),)
    )


def _draw_tuned(seed: int) -> tuple[Case, ...]:
    """Two of the architectures, with other lengths."""
    rng = np.random.default_rng(seed)
    archs = rng.permutation(ARCHITECTURES)[:2]
    lengths = 16 * rng.integers(5, 13, (2, 2))
    return tuple(
        _tuned_case(int(arch), int(N_q), int(N_k), int(rng.integers(2**31)))
        for arch, (N_q, N_k) in zip(archs, lengths, strict=True)
    )


TUNED = Exercise(
    id="05.tuned",
    title="One choice for each of six GPU architectures",
    points=30,
    gpu_points=10,
    minutes=40,
    difficulty=3,
    signature=(
        "tuned_forward(q, k, v, arch, choice=None) -> o"
        "    # choice (block_q, block_k, warps, stages), None: the one that you chose for sm_<arch>"
    ),
    call=_tuned_call,
    oracle=lambda case: _reference(_attention(case))[0],
    honest=lambda case: _reference(_attention(case))[1],
    wrong=lambda case, variant: _only(flash_forward.wrong(_attention(case), variant)),
    cases=tuple(_tuned_case(arch) for arch in ARCHITECTURES),
    draw=_draw_tuned,
    faults=(),
    budget=lambda case: {n: b for n, b in flash_forward.budget(_attention(case)).items() if n in "qkvo"},
    least=lambda case: {n: b for n, b in flash_forward.least(_attention(case)).items() if n in "qkvo"},
    hints=(
        "Start at (64, 64, 4, 2), which compiles without spills everywhere, and ask sweep() for its neighbours.",
        "A choice that spills is out. Eight warps halve what each thread must hold, so they allow larger tiles.",
        "More stages cost shared memory: 99 KiB a block on sm_86, 89 and 120, 163 on sm_80, 227 on sm_90 and sm_100.",
    ),
    shares={f"sm_{arch}": 1 / len(ARCHITECTURES) for arch in ARCHITECTURES},
    tuning=TUNING,
    timed=timed.attention(timed.forward, *"qkv"),
    gpu=timed.attention_cell(products=2, B=4, H=8, d=128),
)

EXERCISES = (WORKING_SET, BLOCKS_PER_SM, FORWARD, TUNED)
