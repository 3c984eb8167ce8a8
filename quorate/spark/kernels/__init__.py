"""Compiled kernels: machine code that numba makes once and that is loaded without numba."""
