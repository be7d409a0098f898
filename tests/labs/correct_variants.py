"""Correct but unusual kernels: each must be judged right with nothing named. Most also stay within the bytes.

A variant is a whole kernel in variants/, whose first line says what is unusual; its name says the exercise.
"""

from __future__ import annotations

from flashkit import exercises
from tests.labs.kernels import VARIANTS

NAMES = tuple(sorted(path.stem for path in VARIANTS.glob("*.py")))

# Right, but with more bytes than a fused forward may ask for. Why each asks for more:
OVER_BUDGET = {
    "causal_all_tiles": "K and V tiles past the diagonal are read",
    "attention_fused_d": "o is read again by each program that needs its D",
    "attention_one_kernel": "dQ goes through memory as fp32 once a key tile, and is cast by a kernel of its own",
    "01_softmax__three_reads": "each row is read three times where once is enough",
    "01_naive_attention__fp32_scores": "S and P take 4 bytes an element where q has 2",
    "02_weighted_sum__split_merge": "the states of the halves go through memory",
    "heads_contiguous": "the copies are other tensors, with no budget of their own",
    "heads_key_tile_launches": "O, l and m make a round trip a key tile, Q is read for each",
    "heads_row_programs": "K and V are read once a query row",
    "heads_split_merge": "Q is read by each split, and the partial results go through memory",
    "heads_two_passes": "K is read twice",
}


def exercise_of(name: str) -> str:
    """``heads_exp2`` answers 03.heads; only labs 03 and 04 may leave out the lab, which ``02_softmax__x`` says."""
    end = name.split("_")[0]
    if name[0].isdigit():
        return name.split("__")[0].replace("_", ".", 1)
    (id,) = (f"{lab}.{end}" for lab in ("03", "04") if f"{lab}.{end}" in exercises.EXERCISES)
    return id
