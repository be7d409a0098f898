"""Counts upwards: as long as one more block fits, it goes in."""


def fits(blocks, warps, registers, shared, sm):
    a_warp = (32 * registers + 255) // 256 * 256
    taken = (shared + sm["system_shared"] + 127) // 128 * 128
    a_quarter = sm["registers"] // 4
    slots = 4 * (a_quarter // a_warp) if a_warp else sm["warps"]
    return (
        blocks <= sm["blocks"]
        and blocks * warps <= sm["warps"]
        and blocks * taken <= sm["shared"]
        and blocks * warps <= slots
    )


def blocks_per_sm(warps, registers, shared, sm):
    alone = (32 * registers + 255) // 256 * 256 * ((warps + 3) // 4 * 4)
    if registers > sm["thread_registers"] or alone > sm["block_registers"] or shared > sm["block_shared"]:
        return 0
    blocks = 0
    while fits(blocks + 1, warps, registers, shared, sm):
        blocks += 1
    return blocks
