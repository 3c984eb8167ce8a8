"""A broker loads what it needs to run, and nothing that is there for tests or for other roles."""

import subprocess
import sys

NOT_NEEDED = ("hypothesis", "numba", "numpy", "pandas", "pyarrow", "pyspark", "pytest")


def loaded_by(statement: str) -> set[str]:
    """Top-level modules of a fresh interpreter after the statement."""
    script = f"{statement}; import sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    output = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return set(output.stdout.split())


def test_a_broker_loads_no_library_for_tests_or_spark() -> None:
    assert loaded_by("import broker.node").isdisjoint(NOT_NEEDED)


def test_what_the_layouts_leave_out_can_be_loaded_later() -> None:
    assert "hypothesis" in loaded_by("import broker.kafka.layouts, hypothesis")
