"""Which addresses a command goes by: Kafka's, or gRPC's where the Kafka listeners let nobody in."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from quorate.cli.main import run
from quorate.client import admin as admin_module


class Nobody:
    """An admin client that is only opened."""

    def list_topics(self) -> list[str]:
        return []

    def __enter__(self) -> "Nobody":
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, list[str]]]:
    found: list[tuple[str | None, list[str]]] = []

    def open_it(bootstrap: str | None, *, grpc_addresses: Sequence[str], **_: object) -> Nobody:
        found.append((bootstrap, list(grpc_addresses)))
        return Nobody()

    monkeypatch.setattr(admin_module, "AdminClient", open_it)
    return found


def local_cluster(folder: Path, *brokers: dict[str, object]) -> list[str]:
    state = {"bootstrap": "127.0.0.1:9092", "brokers": brokers}
    (folder / "cluster.json").write_text(json.dumps(state))
    return ["--data", str(folder)]


def test_a_local_cluster_is_administered_whatever_its_kafka_listeners_ask(
    tmp_path: Path, opened: list[object]
) -> None:
    data = local_cluster(tmp_path, {"id": 1, "grpc": "127.0.0.1:19092"})
    assert run(["topics", "list", *data]) == 0
    assert opened == [(None, ["127.0.0.1:19092"])]


def test_a_folder_that_tells_no_grpc_address_is_found_by_kafka(
    tmp_path: Path, opened: list[object]
) -> None:
    assert run(["topics", "list", *local_cluster(tmp_path)]) == 0
    assert opened == [("127.0.0.1:9092", [])]


def test_other_clusters_are_found_by_kafka_or_by_grpc_addresses_given(
    opened: list[object],
) -> None:
    assert run(["topics", "list", "--bootstrap-server", "a:1,b:2"]) == 0
    assert run(["topics", "list", "--grpc-server", "a:1, b:2"]) == 0
    assert opened == [("a:1,b:2", []), (None, ["a:1", "b:2"])]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--grpc-server", "a"), "--grpc-server a: must be host:port,host:port"),
        (("--grpc-server", ""), "must be host:port"),
        (("--grpc-server", "a:1", "--bootstrap-server", "b:2"), "not two of them"),
        (("--grpc-server", "a:1", "--data", "c"), "not two of them"),
    ],
)
def test_a_way_in_that_cannot_be_meant_is_a_usage_error(
    words: Sequence[str],
    message: str,
    opened: list[object],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["topics", "list", *words]) == 2
    assert message in capsys.readouterr().err
    assert opened == []
