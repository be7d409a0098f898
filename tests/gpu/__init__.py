"""Kernels compiled and run on a real GPU: ``make gpu-test``. Needs numpy, torch and triton, no Jupyter."""
