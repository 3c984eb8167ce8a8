"""Files of the audit log are set aside by size and age, and deleted when they are old."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quorate.broker.changes.audit_files import AuditFiles, AuditLimits

DAY_S = 24 * 3_600
BEGUN_S = 1_593_330_804.078


class Log:
    """An audit log at a time that tests set."""

    def __init__(self, folder: Path, limits: AuditLimits) -> None:
        self.path = folder / "audit.log"
        self.now_s = BEGUN_S
        self.files = AuditFiles(self.path, limits, lambda: self.now_s)

    def write(self, number: int) -> None:
        stamp = datetime.fromtimestamp(self.now_s, UTC).isoformat(timespec="milliseconds")
        self.files.append(json.dumps({"timestamp": stamp, "number": number}).encode() + b"\n")

    def numbers(self) -> list[list[int]]:
        """What is in each file, the oldest first."""
        files = sorted(self.path.parent.iterdir(), key=lambda path: (path == self.path, path.name))
        return [[json.loads(line)["number"] for line in read_lines(file)] for file in files]


def read_lines(path: Path) -> Sequence[str]:
    return path.read_text().splitlines()


def test_a_large_file_is_set_aside_under_the_time(tmp_path: Path) -> None:
    log = Log(tmp_path, AuditLimits(roll_bytes=100))
    for number in range(4):
        log.write(number)
        log.now_s += 1
    assert log.numbers() == [[0, 1], [2, 3]]
    assert (tmp_path / "audit.log.2020-06-28T07-53-26.078Z").exists()


def test_two_files_of_one_moment_do_not_overwrite_each_other(tmp_path: Path) -> None:
    log = Log(tmp_path, AuditLimits(roll_bytes=1))
    for number in range(4):
        log.write(number)
    assert sorted(log.numbers()) == [[0], [1], [2], [3]]


def test_an_old_file_is_set_aside_also_after_a_restart(tmp_path: Path) -> None:
    log = Log(tmp_path, AuditLimits(roll_days=7))
    log.write(0)
    log.now_s += 7 * DAY_S - 1
    log.write(1)
    again = Log(tmp_path, AuditLimits(roll_days=7))
    again.now_s = log.now_s + 1
    again.write(2)
    assert again.numbers() == [[0, 1], [2]]


def test_files_older_than_the_retention_are_deleted_and_others_stay(tmp_path: Path) -> None:
    log = Log(tmp_path, AuditLimits(roll_bytes=1, retention_days=10))
    mine = tmp_path / "audit.log.copy"
    mine.write_text("")
    for number in range(4):
        log.write(number)
        log.now_s += 6 * DAY_S
    assert mine.exists()
    mine.unlink()
    assert log.numbers() == [[1], [2], [3]]


def test_nothing_is_set_aside_without_limits(tmp_path: Path) -> None:
    log = Log(tmp_path, AuditLimits())
    log.write(0)
    log.now_s += 1_000 * DAY_S
    log.write(1)
    assert log.numbers() == [[0, 1]]


def test_a_file_that_begins_with_something_else_is_not_old(tmp_path: Path) -> None:
    log = Log(tmp_path, AuditLimits(roll_days=1))
    log.path.write_text('{"timestamp": "yesterday", "number": 7}\n')
    log.write(8)
    assert log.numbers() == [[7, 8]]


def test_entries_are_kept_where_a_file_cannot_be_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(tmp_path, AuditLimits(roll_bytes=1))
    log.write(0)

    def refuse(path: Path, target: Path) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(Path, "rename", refuse)
    log.write(1)
    assert read_lines(log.path)[1:] != []
    assert "cannot be set aside: no" in caplog.text
