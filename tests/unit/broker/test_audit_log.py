"""The audit trail's file: whole lines, in order, begun anew when renamed, never in the way."""

import asyncio
import json
from pathlib import Path

import pytest

from quorate.broker.changes.audit_log import AuditLog


def lines(path: Path) -> list[int]:
    return [json.loads(line)["number"] for line in path.read_text().splitlines()]


async def test_f5_entries_are_in_the_file_when_told_so_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit_log = AuditLog(path)
    await audit_log.keep([{"number": 0}, {"number": 1}])
    assert lines(path) == [0, 1]
    await asyncio.gather(*(audit_log.keep([{"number": number}]) for number in range(2, 40)))
    assert lines(path) == list(range(40))
    assert path.stat().st_mode & 0o007 == 0, "not for everybody"
    await audit_log.close()


async def test_f5_each_line_begins_with_its_time(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit_log = AuditLog(path, clock_s=lambda: 1_593_330_804.078)
    await audit_log.keep([{"number": 0}])
    assert path.read_text() == '{"timestamp": "2020-06-28T07:53:24.078+00:00", "number": 0}\n'
    await audit_log.close()


async def test_f5_a_renamed_file_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit_log = AuditLog(path)
    await audit_log.keep([{"number": 0}])
    path.rename(tmp_path / "audit.log.1")
    await audit_log.keep([{"number": 1}])
    assert lines(path) == [1]
    await audit_log.close()


async def test_f5_a_full_disk_stops_no_change_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit_log = AuditLog(tmp_path / "nowhere" / "audit.log")
    await audit_log.keep([{"number": 0}])
    assert "cannot be written" in caplog.text
    assert '"number": 0}' in caplog.text
    (tmp_path / "nowhere").mkdir()
    await audit_log.keep([{"number": 1}])
    assert lines(tmp_path / "nowhere" / "audit.log") == [1]
    await audit_log.close()


async def test_f5_who_stops_waiting_stops_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit_log = AuditLog(path)
    impatient = asyncio.create_task(audit_log.keep([{"number": 0}]))
    await asyncio.sleep(0)
    impatient.cancel()
    await audit_log.keep([{"number": 1}])
    assert lines(path) == [0, 1]
    await audit_log.close()
