"""Logs that the quorum does not know, in the folder of a stopped broker (rule 7)."""

import base64
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.recovery.strays import delete, restore, strays
from quorate.cli.records.log_command import log as log_command
from quorate.common.types import LeaderEpoch, TopicId, TopicIdPartition
from tests.support.log_stores import batch, opened

UNKNOWN, KNOWN = TopicId(b"u" * 16), TopicId(b"k" * 16)
STRAY, REPLICA = TopicIdPartition(UNKNOWN, 0), TopicIdPartition(KNOWN, 0)


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """Two records of a topic that the quorum does not know."""
    async with opened(tmp_path) as store:
        log = store.store.create(STRAY, "orders", assigned_at=7)
        log.append_as_leader(batch(2), LeaderEpoch(0))
        await store.until_flushed(log)
        store.store.note_strays([STRAY])
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    command = [arguments[0], "--log-dir", str(folder), *arguments[1:]]
    result = CliRunner().invoke(log_command, ["strays", *command])
    assert result.exit_code == 0, result.output
    return result.output


async def test_a_stray_is_listed(folder: Path) -> None:
    (found,) = strays(folder)
    assert (found.topic, found.partition, found.assigned_at) == ("orders", 0, 7)
    assert (found.topic_id, found.end_offset) == (UNKNOWN.hex(), 2)
    assert f"orders-0  id {UNKNOWN.hex()}, offsets 0 to 2" in run(folder, "list")
    (document,) = json.loads(run(folder, "list", "--json"))
    assert document["topic_id"] == UNKNOWN.hex()


async def test_a_stray_is_deleted_and_nothing_else(folder: Path) -> None:
    with pytest.raises(KafkaError, match="is no stray; the strays are orders-0 with id"):
        delete(folder, KNOWN, 0)
    run(folder, "delete", "--topic-id", UNKNOWN.hex(), "--partition", "0")
    assert strays(folder) == []
    assert run(folder, "list") == "no strays\n"
    async with opened(folder) as store:
        assert STRAY not in store.store.logs


async def test_a_restored_stray_is_the_log_of_the_topic_and_declared_lost(folder: Path) -> None:
    to = base64.urlsafe_b64encode(KNOWN).decode().rstrip("=")
    run(folder, "restore", "--topic-id", UNKNOWN.hex(), "--partition", "0", "--to-topic-id", to)
    async with opened(folder) as store:
        assert store.store.logs[REPLICA].log_end_offset == 2
        assert store.store.history.lost == (tuple(REPLICA),)
        assert STRAY not in store.store.logs
        assert store.store.history.strays == ()


async def test_a_restored_stray_takes_the_place_of_an_empty_log_only(folder: Path) -> None:
    async with opened(folder) as store:
        log = store.store.create(REPLICA, "orders", assigned_at=9)
        log.append_as_leader(batch(), LeaderEpoch(0))
        await store.until_flushed(log)
    with pytest.raises(KafkaError, match="has a log of its own here, with offsets 0 to 1"):
        restore(folder, UNKNOWN, 0, KNOWN)
    assert len(strays(folder)) == 1
    async with opened(folder) as store:
        await store.store.delete(REPLICA)
        store.store.create(REPLICA, "orders", assigned_at=9)
    restore(folder, UNKNOWN, 0, KNOWN)
    async with opened(folder) as store:
        log = store.store.logs[REPLICA]
        assert (log.log_end_offset, log.assigned_at) == (2, 9)


async def test_a_folder_without_strays_says_so(tmp_path: Path) -> None:
    StoreTable.open(tmp_path).close()
    with pytest.raises(KafkaError, match="there are no strays"):
        delete(tmp_path, UNKNOWN, 0)


async def test_what_is_no_topic_id_is_refused_with_advice(folder: Path) -> None:
    command = ["strays", "delete", "--log-dir", str(folder), "--topic-id", "x", "--partition", "0"]
    result = CliRunner().invoke(log_command, command)
    assert result.exit_code == 2
    assert "'x' is no topic id" in result.output
