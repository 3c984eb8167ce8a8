"""Faults that a power loss must bring to light, built into the process that writes or opens."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import lmdb

from quorate.broker.log.options import Flush
from quorate.broker.log.recovery.recovered_log import RecoveredLog
from quorate.broker.log.writing.live_segments import LiveSegments

_Fault = Callable[[], AbstractContextManager[object]]


class Mutant(NamedTuple):
    """A fault while the store is used, and one while it is opened after the power loss."""

    flush: Flush
    writing: _Fault
    opening: _Fault = nullcontext


def _opened_with(**settings: bool) -> AbstractContextManager[object]:
    """Every LMDB environment is opened with these settings instead of its own."""
    real = lmdb.open

    def opened(path: str, **own: Any) -> object:  # noqa: ANN401 - as LMDB has it
        return real(path, **{**own, **settings})

    return patch("lmdb.open", opened)


def _release_at_once(segments: LiveSegments) -> None:
    while segments.kept:
        segments.release(segments.kept.popleft()[1])


def _written_alone(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


MUTANTS: Final = {
    "metasync=False": Mutant("sync", partial(_opened_with, metasync=False)),
    "sync=False": Mutant("sync", partial(_opened_with, sync=False)),
    "no folder sync": Mutant(
        "sync", partial(patch, "quorate.broker.log.segments.segment.sync_folder", lambda _: None)
    ),
    "copies replace before they are synced": Mutant(
        "os", partial(patch.object, LiveSegments, "release_durable", _release_at_once)
    ),
    "sealed without fsync": Mutant(
        "os", partial(patch, "quorate.broker.log.segments.segment._write_durably", _written_alone)
    ),
    "truncations of sealed segments forgotten": Mutant(
        "sync", nullcontext, partial(patch.object, RecoveredLog, "_exists", lambda *_: True)
    ),
}


def writing(name: str) -> AbstractContextManager[object]:
    """The fault of that mutant; none without a name."""
    return MUTANTS[name].writing() if name else nullcontext()


def opening(name: str) -> AbstractContextManager[object]:
    """The fault of that mutant while the store is opened; none without a name."""
    return MUTANTS[name].opening() if name else nullcontext()
