"""Instruments: what a kernel does, measured (bytes, bounds, races) and what the compiler makes of it."""
