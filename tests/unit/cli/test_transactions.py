"""``quorate transactions``: what is asked, and what people and scripts are shown."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from quorate.cli.main import run
from quorate.client import admin
from quorate.client.results import PartitionName, PartitionProducer, Transaction

ONGOING = Transaction(
    transactional_id="pay",
    coordinator=2,
    state="Ongoing",
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    open_ms=83_000,
    partitions=(PartitionName(topic="orders", partition=1),),
)
HANGING = PartitionProducer(
    topic="orders",
    partition=3,
    leader=1,
    producer_id=9,
    producer_epoch=0,
    last_sequence=None,
    idle_ms=3 * 86_400_000,
    coordinator_epoch=None,
    transaction_start_offset=4711,
)


class Cluster:
    """What the admin client was asked, and what it answers."""

    def __init__(self) -> None:
        self.transactions = [ONGOING]
        self.producers = [HANGING]
        self.asked: list[tuple[Any, ...]] = []

    def list_transactions(self, **filters: object) -> list[Transaction]:
        self.asked.append(("list", {key: value for key, value in filters.items() if value}))
        return self.transactions

    def find(self, topic: str, partitions: Sequence[int]) -> list[PartitionProducer]:
        self.asked.append(("find", topic, tuple(partitions)))
        return self.producers

    def describe(self, topic: str, partitions: Sequence[int]) -> list[PartitionProducer]:
        self.asked.append(("producers", topic, tuple(partitions)))
        return self.producers

    def abort(self, transactional_id: str) -> tuple[int, int]:
        self.asked.append(("abort", transactional_id))
        return 7, 4

    def abort_hanging(self, topic: str, partition: int, start: int) -> tuple[int, int]:
        self.asked.append(("abort", topic, partition, start))
        return 9, 0


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    fake = Cluster()
    for name, method in {
        "list_transactions": fake.list_transactions,
        "find_hanging_transactions": fake.find,
        "describe_producers": fake.describe,
        "abort_transaction": fake.abort,
        "abort_hanging_transaction": fake.abort_hanging,
    }.items():
        monkeypatch.setattr(
            admin.AdminClient, name, lambda _, *args, _call=method, **named: _call(*args, **named)
        )
    return fake


def ask(*arguments: str) -> int:
    return run(["transactions", *arguments, "--bootstrap-server", "127.0.0.1:1"])


def test_transactions_are_listed_with_how_long_they_are_open(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask("list", "--state", "Ongoing", "--open-for", "1m", "--producer-id", "7") == 0
    assert cluster.asked == [
        ("list", {"states": ("Ongoing",), "open_for_ms": 60_000, "producer_ids": (7,)})
    ]
    heads, line = capsys.readouterr().out.splitlines()
    assert heads.split()[:2] == ["transactional", "id"]
    assert line.split() == ["pay", "2", "Ongoing", "7", "3", "1m23s"]


def test_scripts_are_shown_everything(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask("list", "--json") == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["partitions"] == [{"topic": "orders", "partition": 1}]
    assert one["open_ms"] == 83_000
    assert ask("find-hanging", "--json") == 0
    (hanging,) = json.loads(capsys.readouterr().out)
    assert (hanging["transaction_start_offset"], hanging["last_sequence"]) == (4711, None)


def test_one_transactional_id_with_its_partitions(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask("describe", "pay") == 0
    shown = capsys.readouterr().out
    assert "pay: Ongoing, open for 1m23s (at most 1m00s), producer 7 epoch 3" in shown
    assert "  orders-1" in shown
    cluster.transactions = []
    assert ask("describe", "other") == 1
    assert "there is no transactional id 'other'" in capsys.readouterr().err


def test_what_hangs_is_shown_with_the_way_to_end_it(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask("find-hanging", "--topic", "orders", "--partition", "3") == 0
    assert cluster.asked == [("find", "orders", (3,))]
    shown = capsys.readouterr().out
    assert "3d00h" in shown
    assert "transactions abort --topic orders --partition 3 --start-offset 4711" in shown
    cluster.producers = []
    assert ask("find-hanging") == 0
    assert capsys.readouterr().out == "no transaction hangs\n"


def test_a_transactional_id_is_aborted_by_its_coordinator(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask("abort", "--transactional-id", "pay", "--dry-run") == 0
    assert cluster.asked == [("list", {"transactional_ids": ["pay"]})]
    assert "producer 7 epoch 3, would be aborted (--dry-run)" in capsys.readouterr().out
    assert ask("abort", "--transactional-id", "pay", "--json") == 0
    assert cluster.asked[1:] == [("abort", "pay")]
    assert json.loads(capsys.readouterr().out) == {
        "aborted": True,
        "producer_id": 7,
        "producer_epoch": 4,
    }
    cluster.transactions = []
    assert ask("abort", "--transactional-id", "pay", "--dry-run") == 1
    assert "nothing to abort, it is not known" in capsys.readouterr().err


def test_only_what_hangs_is_aborted_in_its_partition(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--topic", "orders", "--partition", "3", "--start-offset")
    assert ask("abort", *place, "4711", "--dry-run") == 0
    assert cluster.asked == [("find", "orders", (3,))]
    assert ask("abort", *place, "4711") == 0
    assert cluster.asked[-1] == ("abort", "orders", 3, 4711)
    cluster.asked.clear()
    assert ask("abort", *place, "4712") == 1
    assert cluster.asked == [("find", "orders", (3,))], "a transaction would be torn"
    assert "no transaction that hangs begins there" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["abort"],
        ["abort", "--transactional-id", "pay", "--topic", "orders"],
        ["abort", "--topic", "orders", "--partition", "1"],
        ["find-hanging", "--partition", "1"],
        ["list", "--open-for", "soon"],
        ["producers"],
    ],
)
def test_wrong_usage_asks_nobody(cluster: Cluster, arguments: list[str]) -> None:
    assert ask(*arguments) == 2
    assert not cluster.asked


def test_producers_of_a_topic(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask("producers", "--topic", "orders") == 0
    assert cluster.asked == [("producers", "orders", ())]
    assert capsys.readouterr().out.splitlines()[1].split() == [
        *("orders", "3", "9", "0", "-", "-", "3d00h", "4711")
    ]
