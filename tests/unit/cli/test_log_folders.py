"""``quorate log folders list``: what it asks of running brokers, and reads of stopped ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from quorate.broker.kafka.wire import codec
from quorate.broker.log.directories.known_folders import (
    Absence,
    KnownFolder,
    KnownFolders,
    write_known_folders,
)
from quorate.cli.records import folders_command
from quorate.cli.records.log_command import log
from quorate.client import kafka_request, log_directories
from quorate.client.bootstrap import BrokerEndpoints, ClusterEndpoints
from quorate.client.errors import RequestFailed
from quorate.client.log_directories import LogDirectory, describe_log_directories
from quorate.client.security import ClientSecurity
from quorate.common.files.data_folder import held_data_folder
from quorate_proto.v1 import errors_pb2

FIRST = b"\x11" * 16
SECOND = b"\x22" * 16


def answered(**answer: Any) -> bytes:  # noqa: ANN401
    """The answer of a broker, as its own codec writes it, behind the header."""
    values = {"throttle_time": 0, "error_code": 0, "results": (), **answer}
    return b"\0\0\0\1\0" + codec.encode_response("describe_log_dirs", 4, values)


def replica(number: int, size: int, *, is_future: bool = False) -> dict[str, object]:
    return {
        "partition_index": number,
        "partition_size": size,
        "offset_lag": 0,
        "is_future_key": is_future,
    }


def folder(path: str, *replicas: dict[str, object], code: int = 0) -> dict[str, object]:
    topics = [{"name": "orders", "partitions": replicas}] if replicas else []
    return {
        "error_code": code,
        "log_dir": path,
        "topics": topics,
        "total_bytes": -1 if code else 4_000,
        "usable_bytes": -1 if code else 3_000,
        "is_cordoned": False,
    }


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What the broker at each address answers; two brokers are live."""
    found: dict[str, bytes] = {}

    def ask_any(address: str, request: bytes, decode: Any, **_: object) -> Any:  # noqa: ANN401
        assert request[4:8] == b"\0\x23\0\4", "DescribeLogDirs"
        assert request.endswith(b"\0\0"), "all topics"
        return decode(found[address])

    brokers = (BrokerEndpoints(2, "two:9092", ""), BrokerEndpoints(1, "one:9092", ""))
    cluster = ClusterEndpoints("id", 1, brokers)
    monkeypatch.setattr(kafka_request, "ask_any", ask_any)
    monkeypatch.setattr(log_directories, "discover", lambda *_, **__: cluster)
    monkeypatch.setattr(folders_command, "require_reachable", lambda _: None)
    return found


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(log, ["folders", *arguments])
    return result.exit_code, result.output


def test_running_brokers_are_asked_each_for_its_own(answers: dict[str, bytes]) -> None:
    moved = replica(1, 30, is_future=True)
    answers["one:9092"] = answered(results=[folder("/a", replica(0, 10), replica(1, 20))])
    answers["two:9092"] = answered(
        results=[folder("/b", moved), folder("/c", code=errors_pb2.KAFKA_STORAGE_ERROR)]
    )
    found = describe_log_directories("host:1", ClientSecurity(), 1_000)
    assert [(one.broker_id, one.path) for one in found] == [(1, "/a"), (2, "/b"), (2, "/c")]
    assert found[0] == LogDirectory(
        broker_id=1,
        path="/a",
        error_code=0,
        replicas=2,
        moving_here=0,
        size_bytes=30,
        total_bytes=4_000,
        usable_bytes=3_000,
    )
    assert (found[1].replicas, found[1].moving_here, found[1].size_bytes) == (0, 1, 30)

    code, shown = run("list", "--bootstrap-server", "host:1")
    assert code == 0
    assert [line.split()[:3] for line in shown.splitlines()[1:]] == [
        ["1", "/a", "2"],
        ["2", "/b", "0"],
        ["2", "/c", "0"],
    ]
    assert "1 replicas move here" in shown.splitlines()[2]
    assert shown.splitlines()[3].split()[3:] == ["0", "B", "unknown", "in", "trouble"]
    _, document = run("list", "--bootstrap-server", "host:1", "--json")
    assert [one["in_trouble"] for one in json.loads(document)] == [False, False, True]


def test_who_may_not_describe_the_cluster_is_told_so(answers: dict[str, bytes]) -> None:
    answers["one:9092"] = answered(error_code=errors_pb2.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(RequestFailed, match="log directories of broker 1"):
        describe_log_directories("host:1", ClientSecurity(), 1_000)


def test_a_stopped_broker_s_record_is_read_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "identity.json").touch()
    gone = KnownFolder("/disk-2", Absence(b"", 0, 0))
    write_known_folders(
        tmp_path, KnownFolders(1, {FIRST: KnownFolder(str(tmp_path)), SECOND: gone})
    )
    code, shown = run("list", "--log-dir", str(tmp_path))
    assert code == 0
    assert shown.splitlines() == [
        f"{FIRST.hex()}  {tmp_path}",
        f"{SECOND.hex()}  /disk-2  absent",
    ]


def test_a_folder_that_holds_log_folders_is_refused_with_their_names(tmp_path: Path) -> None:
    for name in ("disk-1", "disk-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "identity.json").touch()
    (tmp_path / "other").mkdir()
    for command in (["folders", "list"], ["verify"], ["folders", "forget", FIRST.hex()]):
        result = CliRunner().invoke(log, [*command, "--log-dir", str(tmp_path)])
        assert result.exit_code == 1
        assert f"holds {tmp_path}/disk-1, {tmp_path}/disk-2: give one of them" in result.output


def test_a_folder_that_no_broker_has_used_is_no_folder_of_one(tmp_path: Path) -> None:
    code, shown = run("list", "--log-dir", str(tmp_path))
    assert code == 1
    assert "no broker has used it" in shown
    assert not list(tmp_path.iterdir())


def test_of_a_folder_in_use_it_says_how_to_ask_the_broker(tmp_path: Path) -> None:
    (tmp_path / "identity.json").touch()
    with held_data_folder(tmp_path):
        code, shown = run("list", "--log-dir", str(tmp_path))
    assert code == 1
    assert "used by another process" in shown
    assert "list --bootstrap-server" in shown


def test_a_stopped_and_a_running_broker_are_not_asked_at_once(tmp_path: Path) -> None:
    code, shown = run("list", "--log-dir", str(tmp_path), "--bootstrap-server", "host:1")
    assert code == 2
    assert "not both" in shown
