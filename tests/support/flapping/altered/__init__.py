"""Brokers that are other than the product, as real processes: a guard is taken out, or a link slow.

Their processes find ``sitecustomize`` in this folder by PYTHONPATH, and it makes the changes before
anything else runs. The product knows nothing of it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CHANGES: Final = "QUORATE_TEST_CHANGES"


@contextmanager
def altered(*names: str) -> Iterator[None]:
    """Have processes that are started from here run with changes, see ``changes``."""
    before = {name: os.environ.get(name) for name in (CHANGES, "PYTHONPATH")}
    paths = [str(Path(__file__).parent), before["PYTHONPATH"] or ""]
    os.environ[CHANGES] = " ".join(names)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
