"""An error of the system is told apart from damage: nothing is restored or set aside for it."""

import errno
from pathlib import Path

import lmdb
import pytest

from quorate.broker.log.segments.system_errors import refuse_system_error

PATH = Path("store.mdb")


def error_of(code: int) -> lmdb.Error:
    error = lmdb.Error("mdb_env_sync")
    vars(error)["code"] = code  # LMDB sets it; a subclass of Python has none.
    return error


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.EACCES, "make it writable"), (errno.EIO, "its disk fails; repair it")],
)
def test_an_error_of_the_system_says_what_to_do(code: int, advice: str) -> None:
    with pytest.raises(OSError, match=advice) as found:
        refuse_system_error(PATH, error_of(code))
    assert (found.value.errno, found.value.filename) == (code, "store.mdb")


def test_an_error_of_lmdb_itself_is_no_error_of_the_system() -> None:
    refuse_system_error(PATH, error_of(-30796))
