"""``python -m quorate.spark.decoding``: compile the decoder now, as when an image is built."""

from quorate.spark.decoding.kernels import EVERY_KERNEL
from quorate.spark.kernels.store import load

if __name__ == "__main__":
    for declaration in EVERY_KERNEL:
        load(declaration)
