"""``quorate topics alter``: partitions added and removed (C14)."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from quorate.cli.main import run
from quorate.client import admin
from quorate.client.results import (
    CreatePartitionsOptions,
    NewPartitions,
    PartitionName,
    TopicResult,
)


def outcome(code: int = 0, error: str = "NONE") -> TopicResult:
    return TopicResult(
        name="orders",
        error_code=code,
        error=error,
        message="orders: no" if code else "",
        topic_id=b"",
        num_partitions=4,
        replication_factor=1,
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the admin client was asked for; topic "bad" is refused."""
    asked: list[Any] = []

    def create(
        self: admin.AdminClient, wanted: Sequence[NewPartitions], options: CreatePartitionsOptions
    ) -> list[TopicResult]:
        assert not options.retry_on_quota_violation
        asked.extend(wanted)
        return [outcome(37, "INVALID_PARTITIONS") if wanted[0].name == "bad" else outcome()]

    def remove(self: admin.AdminClient, wanted: Sequence[PartitionName]) -> list[TopicResult]:
        asked.extend(wanted)
        return [outcome()]

    monkeypatch.setattr(admin.AdminClient, "create_partitions", create)
    monkeypatch.setattr(admin.AdminClient, "remove_partitions", remove)
    return asked


def alter(*arguments: str) -> int:
    return run(["topics", "alter", "--bootstrap-server", "127.0.0.1:1", *arguments])


def test_c14_partitions_are_added_in_all_or_by_hand(
    asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert alter("--topic", "orders", "--partitions", "4") == 0
    assert (
        alter("--topic", "orders", "--partitions", "4", "--replica-assignment", "1:2,2:1", "--json")
        == 0
    )
    assert asked == [
        NewPartitions(name="orders", count=4),
        NewPartitions(name="orders", count=4, assignments=[[1, 2], [2, 1]]),
    ]
    first, rest = capsys.readouterr().out.split("\n", 1)
    assert first == "Topic orders has 4 partitions."
    assert json.loads(rest) == {"name": "orders", "num_partitions": 4}


def test_c14_partitions_are_removed_by_number(asked: list[Any]) -> None:
    assert alter("--topic", "orders", "--remove-partitions", "5,4") == 0
    assert asked == [
        PartitionName(topic="orders", partition=5),
        PartitionName(topic="orders", partition=4),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--topic", "orders"],
        ["--topic", "orders", "--partitions", "3", "--remove-partitions", "4"],
        ["--topic", "orders", "--remove-partitions", "4", "--replica-assignment", "1:2"],
        ["--topic", "orders", "--remove-partitions", "four"],
        ["--partitions", "3"],
    ],
)
def test_what_makes_no_sense_is_a_usage_error(asked: list[Any], arguments: list[str]) -> None:
    assert alter(*arguments) == 2
    assert not asked


@pytest.mark.usefixtures("asked")
def test_c14_a_refusal_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert alter("--topic", "bad", "--partitions", "3") == 1
    assert capsys.readouterr().err == "quorate: INVALID_PARTITIONS: orders: no\n"
