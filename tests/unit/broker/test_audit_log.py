"""The audit trail's file: whole lines, in order, begun anew when renamed, never in the way."""

import asyncio
import json
from pathlib import Path

import pytest

from broker.audit_log import AuditLog


def lines(path: Path) -> list[int]:
    return [json.loads(line)["number"] for line in path.read_text().splitlines()]


async def test_f5_entries_are_in_the_file_when_told_so_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    trail = AuditLog(path)
    await trail.keep([{"number": 0}, {"number": 1}])
    assert lines(path) == [0, 1]
    await asyncio.gather(*(trail.keep([{"number": number}]) for number in range(2, 40)))
    assert lines(path) == list(range(40))
    assert path.stat().st_mode & 0o007 == 0, "not for everybody"
    await trail.close()


async def test_f5_a_renamed_file_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    trail = AuditLog(path)
    await trail.keep([{"number": 0}])
    path.rename(tmp_path / "audit.log.1")
    await trail.keep([{"number": 1}])
    assert lines(path) == [1]
    await trail.close()


async def test_f5_a_full_disk_stops_no_change_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trail = AuditLog(tmp_path / "nowhere" / "audit.log")
    await trail.keep([{"number": 0}])
    assert "cannot be written" in caplog.text
    assert '{"number": 0}' in caplog.text
    (tmp_path / "nowhere").mkdir()
    await trail.keep([{"number": 1}])
    assert lines(tmp_path / "nowhere" / "audit.log") == [1]
    await trail.close()


async def test_f5_who_stops_waiting_stops_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    trail = AuditLog(path)
    impatient = asyncio.create_task(trail.keep([{"number": 0}]))
    await asyncio.sleep(0)
    impatient.cancel()
    await trail.keep([{"number": 1}])
    assert lines(path) == [0, 1]
    await trail.close()
