"""Faults that a power loss must bring to light; each is built into the recorded process."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import lmdb


def _opened_with(**settings: bool) -> AbstractContextManager[object]:
    """Every LMDB environment is opened with these settings instead of its own."""
    real = lmdb.open

    def opened(path: str, **own: Any) -> object:  # noqa: ANN401 - as LMDB has it
        return real(path, **{**own, **settings})

    return patch("lmdb.open", opened)


MUTANTS: Final[dict[str, Callable[[], AbstractContextManager[object]]]] = {
    "metasync=False": partial(_opened_with, metasync=False),
    "sync=False": partial(_opened_with, sync=False),
    "no folder sync": partial(patch, "broker.log.segment.sync_folder", lambda _: None),
}
