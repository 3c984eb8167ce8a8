"""What is loaded when: Spark forks its workers, and an executor must not pull the server in."""

import subprocess
import sys

import pytest

from quorate.spark.decoding import decoding_kernels as decoding
from quorate.spark.kernels.kernel_store import load_kernel
from quorate.spark.writing import writing_kernels as writing

FORBIDDEN_BEFORE_FORK = (
    "grpc",
    "numba",
    "lmdb",
    "msgspec",
    "numpy",
    "pyarrow",
    "pyruhvro",
    "ptars",
)
FORBIDDEN_ON_EXECUTORS = ("broker", "quorum", "metadata_log", "lmdb", "pysyncobj", "kio")


def loaded_by(module: str) -> set[str]:
    """Top-level names of what a fresh interpreter has loaded after importing ``module``."""
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(told.stdout.split())


def test_the_source_loads_no_grpc_before_spark_forks() -> None:
    assert loaded_by("quorate.spark").isdisjoint(FORBIDDEN_BEFORE_FORK)


@pytest.mark.parametrize("module", ["pyspark_quorate", "pyspark_quorate_metadata"])
def test_a_format_found_by_name_loads_no_grpc_either(module: str) -> None:
    assert loaded_by(module).isdisjoint(FORBIDDEN_BEFORE_FORK)


@pytest.mark.parametrize("module", ["reading.range_reader", "metadata.metadata_range_reader"])
def test_reading_loads_nothing_of_the_server(module: str) -> None:
    assert loaded_by(f"quorate.spark.{module}").isdisjoint(FORBIDDEN_ON_EXECUTORS)


def test_reading_loads_no_numba_where_its_kernels_are_compiled_already() -> None:
    for kernel in decoding.EVERY_KERNEL:
        load_kernel(kernel)
    assert "numba" not in loaded_by("tests.support.decode_a_batch")


def test_writing_loads_neither_numba_nor_anything_of_the_server() -> None:
    for kernel in writing.EVERY_KERNEL:
        load_kernel(kernel)
    loaded = loaded_by("tests.support.encode_a_batch")
    assert loaded.isdisjoint({"numba", *FORBIDDEN_ON_EXECUTORS})
