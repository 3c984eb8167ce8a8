"""``python -m quorate.spark.kernels``: compile them all now, as when an image is built."""

from quorate.spark.decoding import kernels as decoding
from quorate.spark.kernels.store import load
from quorate.spark.writing import kernels as writing

if __name__ == "__main__":
    for declaration in (*decoding.EVERY_KERNEL, *writing.EVERY_KERNEL):
        load(declaration)
