"""Compiled kernels: numba makes the machine code once, and it is loaded without numba later."""
