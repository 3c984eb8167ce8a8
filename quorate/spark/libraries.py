"""The libraries that the Spark source needs, checked when it is imported.

Spark often comes with the host and not with pip: a cluster's own ``pyspark`` goes before the one
installed with this package. What then fails is far from the cause, so the cause is told here.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Final

from quorate.client.errors import QuorateError

PYSPARK_SERIES: Final = "4.3"
"""Python sources change between minor releases: the interfaces of writers and streams, and the
faults that `quorate.spark.source` works around."""
NEEDED: Final = ("pyspark", "pyarrow", "numba", "numpy")
ADVICE: Final = "`pip install 'quorate[spark]'`, on the driver and on every executor"


class UnfitLibrary(QuorateError, ImportError):
    """A library is missing, or one of another version is found; the message says what to do."""


def check_libraries() -> None:
    """Refuse to go on without the libraries that reading and writing need.

    Raises:
        UnfitLibrary: names the library, the version found and its file.
    """
    refuse_missing([name for name in NEEDED if find_spec(name) is None])
    pyspark = import_module("pyspark")
    refuse_other_pyspark(pyspark.__version__, str(pyspark.__file__))


def refuse_missing(missing: list[str]) -> None:
    """Refuse if a library is not there.

    Raises:
        UnfitLibrary: names those that are missing.
    """
    if missing:
        raise UnfitLibrary(f"quorate.spark does not find {', '.join(missing)}: {ADVICE}")


def refuse_other_pyspark(version: str, file: str) -> None:
    """Refuse a ``version`` of pyspark that this source is not made for.

    Raises:
        UnfitLibrary: names the version and where it was found.
    """
    if not f"{version}.".startswith(f"{PYSPARK_SERIES}."):
        raise UnfitLibrary(
            f"quorate.spark is made for pyspark {PYSPARK_SERIES}, but finds {version} in {file}: "
            f"{ADVICE}; where the host brings its own Spark (SPARK_HOME, PYTHONPATH), that has to "
            f"be {PYSPARK_SERIES} as well"
        )
