"""Stall counts of ptxas: read from disassembly, and higher where a kernel has no register to spare."""

from flashkit.instruments.listing import read
from flashkit.instruments.stalls import main_loop


def instruction(text: str, stall: int) -> str:
    upper = 0x000FC00000000000 | stall << 41
    return f"        /*0010*/                   {text} ;  /* 0x0000000000027919 */\n{' ' * 60}/* 0x{upper:016x} */\n"


SASS = (
    instruction("MOV R1, c[0x0][0x28]", 9)
    + ".L_x_1:\n"
    + instruction("FMUL R0, R1, R2", 4)
    + ".L_x_0:\n"
    + instruction("HGMMA.64x64x16.F32 R24, gdesc[UR12], RZ, !UPT", 2)
    + instruction("FADD R0, R1, R2", 15)
    + instruction("@P0 BRA `(.L_x_0)", 5)
    + instruction("@P1 BRA `(.L_x_1)", 1)
    + instruction("EXIT", 7)
)


def test_the_innermost_loops_stalls_are_added():
    assert main_loop(SASS) == 1 + 15 + 5  # the matrix unit's own time is not the schedule's


def test_the_loop_with_matrix_work_counts_before_a_longer_one():
    longer = (
        ".L_x_2:\n" + "".join(instruction("FADD R0, R1, R2", 1) for _ in range(9)) + instruction("BRA `(.L_x_2)", 1)
    )
    assert main_loop(longer) == 10 and main_loop(SASS + longer) == 21


def test_without_a_loop_or_a_disassembly_nothing_is_known():
    assert main_loop("") == main_loop(instruction("EXIT", 3)) == 0
    assert read("", SASS).scheduled == 21 and read("").scheduled == 0
