"""A broker imports only what it needs, and no modules for tests or for other roles."""

import subprocess
import sys

NOT_NEEDED = ("hypothesis", "numba", "numpy", "pandas", "pyarrow", "pyspark", "pytest")


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules of a fresh interpreter after the statement."""
    script = f"{statement}; import sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    output = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return set(output.stdout.split())


def test_a_broker_loads_no_library_for_tests_or_spark() -> None:
    assert loaded_by("import quorate.broker.broker_server").isdisjoint(NOT_NEEDED)


def test_what_the_layouts_leave_out_can_be_loaded_later() -> None:
    assert "hypothesis" in loaded_by("import quorate.broker.kafka.wire.kio_layouts, hypothesis")
