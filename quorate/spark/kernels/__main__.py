"""``python -m quorate.spark.kernels``: compiles all kernels now, for example in an image."""

from quorate.spark.decoding import decoding_kernels as decoding
from quorate.spark.kernels.kernel_store import load_kernel
from quorate.spark.typed import avro_instructions as avro
from quorate.spark.typed import json_lines as lines
from quorate.spark.writing import writing_kernels as writing

if __name__ == "__main__":
    for module in (decoding, writing, avro, lines):
        for declaration in module.EVERY_KERNEL:
            load_kernel(declaration)
