"""What runs the student's code: the only part of flashkit, with instruments, that a grading sandbox holds.

It knows no exercise, no oracle and no seed. Calls come in, outcomes go out (:mod:`flashkit.runtime.call`).
"""
