"""``quorate elect-leaders``: which partitions are named, and what is printed."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from quorate.cli.main import run
from quorate.client import admin
from quorate.client.results import ElectionType, PartitionName, PartitionResult

Asked = list[tuple[ElectionType, Sequence[PartitionName] | None]]


def outcome(topic: str, partition: int, code: int = 0, error: str = "NONE") -> PartitionResult:
    message = f"{topic}-{partition}: {error}" if code else ""
    return PartitionResult(
        topic=topic, partition=partition, error_code=code, error=error, message=message
    )


@pytest.fixture
def results() -> list[PartitionResult]:
    return [outcome("orders", 1), outcome("orders", 2, 84, "ELECTION_NOT_NEEDED")]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, results: list[PartitionResult]) -> Asked:
    asked: Asked = []

    def elect_leaders(
        self: admin.AdminClient,
        election_type: ElectionType,
        partitions: Sequence[PartitionName] | None = None,
    ) -> list[PartitionResult]:
        asked.append((election_type, partitions))
        return results

    monkeypatch.setattr(admin.AdminClient, "elect_leaders", elect_leaders)
    return asked


def elect(*arguments: str) -> int:
    return run(["elect-leaders", "--bootstrap-server", "127.0.0.1:1", *arguments])


def test_c2_one_partition_all_partitions_or_those_of_a_file(asked: Asked, tmp_path: Path) -> None:
    named = tmp_path / "partitions.json"
    named.write_text(json.dumps({"partitions": [{"topic": "foo", "partition": 1}]}))
    assert elect("--election-type", "unclean", "--topic", "orders", "--partition", "3") == 0
    assert elect("--election-type", "PREFERRED", "--all-topic-partitions") == 0
    assert elect("--election-type", "preferred", "--path-to-json-file", str(named)) == 0
    assert asked == [
        (ElectionType.UNCLEAN, [PartitionName(topic="orders", partition=3)]),
        (ElectionType.PREFERRED, None),
        (ElectionType.PREFERRED, [PartitionName(topic="foo", partition=1)]),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--topic", "orders"],
        ["--all-topic-partitions", "--topic", "orders", "--partition", "1"],
        ["--all-topic-partitions", "--partition", "1"],
    ],
)
def test_partitions_must_be_named_in_one_way(
    asked: Asked, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert elect("--election-type", "preferred", *arguments) == 2
    assert "--partition" in capsys.readouterr().err
    assert not asked


def test_a_file_of_another_form_is_a_usage_error_that_shows_the_form(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = tmp_path / "partitions.json"
    named.write_text('{"topics": []}')
    assert elect("--election-type", "preferred", "--path-to-json-file", str(named)) == 2
    assert '{"partitions": [{"topic": "foo", "partition": 1}]}' in capsys.readouterr().err


@pytest.mark.usefixtures("asked")
def test_c2_what_was_needless_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert elect("--election-type", "preferred", "--all-topic-partitions") == 0
    assert capsys.readouterr().out.splitlines() == [
        "Completed preferred leader election of orders-1.",
        "A valid leader was elected already for orders-2.",
    ]


@pytest.mark.usefixtures("asked")
def test_c2_a_refused_election_is_one_line_and_code_1(
    results: list[PartitionResult], capsys: pytest.CaptureFixture[str]
) -> None:
    results.append(outcome("orders", 3, 80, "PREFERRED_LEADER_NOT_AVAILABLE"))
    assert elect("--election-type", "preferred", "--all-topic-partitions", "--json") == 1
    printed = capsys.readouterr()
    assert [one["error"] for one in json.loads(printed.out)] == [
        "NONE",
        "ELECTION_NOT_NEEDED",
        "PREFERRED_LEADER_NOT_AVAILABLE",
    ]
    assert printed.err.startswith("quorate: PREFERRED_LEADER_NOT_AVAILABLE: orders-3")
