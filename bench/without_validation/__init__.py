"""Brokers that look at the headers of batches and not at their records, to measure beside others.

Their processes find ``sitecustomize`` in this folder by PYTHONPATH. The product knows nothing of
it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def without_validation() -> Iterator[None]:
    """Processes that are started from here do not validate records."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
