"""The files of the audit log: one that is written, and older ones beside it until they are deleted.

A file is set aside once it is large or old enough: its name gets the time at which that happened,
as in ``audit.log.2026-11-27T07-52-09.123Z``. The files set aside are deleted when they are older
than the retention. Anybody may rename or delete any of them; the next write begins anew.

Its methods block, so they run in the audit log's own thread.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from quorate.common.files.private_files import FILE_MODE

log = logging.getLogger(__name__)

UNLIMITED: Final = -1
_DAY_S: Final = 24 * 3_600
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)-(\d\d)-(\d\d\.\d{3})Z(?:-\d+)?")
_FIRST_FIELD: Final = re.compile(rb'\{"timestamp": "([^"]{1,40})"')
_FIRST_FIELD_BYTES: Final = 100


class AuditLimits(NamedTuple):
    """When a file is set aside, and when it is deleted after that; ``UNLIMITED`` means never."""

    roll_bytes: int = UNLIMITED
    roll_days: int = UNLIMITED
    retention_days: int = UNLIMITED


NO_LIMITS: Final = AuditLimits()


class AuditFiles:
    """The files of one audit log."""

    def __init__(self, path: Path, limits: AuditLimits, clock_s: Callable[[], float]) -> None:
        """``clock_s`` is the wall clock, in seconds since the epoch."""
        self._path = path
        self._limits = limits
        self._clock_s = clock_s

    def append(self, lines: bytes) -> None:
        """Append whole lines, after the file was set aside if it is its time.

        Raises:
            OSError: the lines are not in the file, or only a part of them.
        """
        self._make_way()
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
        try:
            left = memoryview(lines)
            while left:
                left = left[os.write(file, left) :]
        finally:
            os.close(file)

    def _make_way(self) -> None:
        """Set the file aside, and delete old ones. If that fails, it is logged: the entries count
        for more."""
        try:
            if self._is_due():
                self._set_aside()
                for old in self._expired():
                    old.unlink(missing_ok=True)
                    log.info("deleted %s, which is older than the retention", old)
        except OSError as error:
            log.warning("the audit log %s cannot be set aside: %s", self._path, error)

    def _is_due(self) -> bool:
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return False
        if self._limits.roll_bytes != UNLIMITED and size >= self._limits.roll_bytes:
            return True
        if self._limits.roll_days == UNLIMITED or not size:
            return False
        begun_s = _begun_s(self._path)
        return begun_s is not None and self._age_days(begun_s) >= self._limits.roll_days

    def _set_aside(self) -> None:
        now = datetime.fromtimestamp(self._clock_s(), UTC)
        stamp = f"{now:%Y-%m-%dT%H-%M-%S}.{now.microsecond // 1_000:03}Z"
        target = self._path.with_name(f"{self._path.name}.{stamp}")
        number = 0
        while target.exists():
            number += 1
            target = self._path.with_name(f"{self._path.name}.{stamp}-{number}")
        self._path.rename(target)

    def _expired(self) -> Iterator[Path]:
        if self._limits.retention_days == UNLIMITED:
            return
        prefix = f"{self._path.name}."
        for found in self._path.parent.iterdir():
            stamp = _STAMP.fullmatch(found.name.removeprefix(prefix))
            if stamp is None or not found.name.startswith(prefix):
                continue
            set_aside = datetime.fromisoformat(f"{stamp[1]}:{stamp[2]}:{stamp[3]}+00:00")
            if self._age_days(set_aside.timestamp()) >= self._limits.retention_days:
                yield found

    def _age_days(self, since_s: float) -> float:
        return (self._clock_s() - since_s) / _DAY_S


def _begun_s(path: Path) -> float | None:
    """Return the time of the first entry; None if the file does not begin with one."""
    with path.open("rb") as file:
        found = _FIRST_FIELD.match(file.read(_FIRST_FIELD_BYTES))
    try:
        return None if found is None else datetime.fromisoformat(found[1].decode()).timestamp()
    except ValueError:
        return None
