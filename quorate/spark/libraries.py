"""Checks the libraries that the Spark source needs, when it is imported.

Spark often comes with the host and not from pip: a cluster's own ``pyspark`` is found before the
one that was installed with this package. The errors that follow are far from their cause, so the
cause is reported here.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Final

from quorate.client.errors import QuorateError

PYSPARK_SERIES: Final = "4.3"
"""The only supported minor release. The interfaces of writers and streams in Python change between
minor releases, and so do the bugs that `quorate.spark.source` works around."""
NEEDED: Final = ("pyspark", "pyarrow", "numba", "numpy")
NEEDED_FOR_SCHEMAS: Final = ("ptars", "pyruhvro")
"""What decodes and encodes columns by a schema. It is imported where it is used."""
ADVICE: Final = "`pip install 'quorate[spark]'`, on the driver and on every executor"


class UnfitLibrary(QuorateError, ImportError):
    """A library is missing or has another version. The message says what to do."""


def check_libraries() -> None:
    """Check that the libraries for reading and writing are there.

    Raises:
        UnfitLibrary: names the library, and the version and file that were found.
    """
    refuse_missing([name for name in NEEDED if find_spec(name) is None])
    pyspark = import_module("pyspark")
    refuse_other_pyspark(pyspark.__version__, str(pyspark.__file__))


def refuse_missing(missing: list[str]) -> None:
    """Refuse to go on if libraries are missing.

    Raises:
        UnfitLibrary: names the missing libraries.
    """
    if missing:
        raise UnfitLibrary(f"quorate.spark does not find {', '.join(missing)}: {ADVICE}")


def refuse_other_pyspark(version: str, file: str) -> None:
    """Refuse a version of pyspark that this source does not support.

    Raises:
        UnfitLibrary: names the version and where it was found.
    """
    if not f"{version}.".startswith(f"{PYSPARK_SERIES}."):
        raise UnfitLibrary(
            f"quorate.spark is made for pyspark {PYSPARK_SERIES}, but finds {version} in {file}: "
            f"{ADVICE}; where the host brings its own Spark (SPARK_HOME, PYTHONPATH), that has to "
            f"be {PYSPARK_SERIES} as well"
        )
