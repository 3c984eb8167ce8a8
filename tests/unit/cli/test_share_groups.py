"""What ``quorate share-groups`` asks of brokers, what it reads from them, and what it shows."""

import struct
from typing import Any

import pytest
from click.testing import CliRunner

from quorate.cli.share_groups.share_group_view import ShareGroupView, in_flight_of
from quorate.cli.share_groups.share_groups_command import share_groups
from quorate.client import kafka_request
from quorate.client import share_groups as client
from quorate.client.bootstrap import BrokerEndpoints, ClusterEndpoints, MalformedResponse
from quorate.client.errors import ClusterUnreachable, RequestFailed
from quorate.client.results import Metric
from quorate.client.security import ClientSecurity
from quorate.client.share_groups import ShareGroup, ShareGroups, ShareMember, ShareOffset
from quorate_proto.v1 import errors_pb2

GROUP = "workers"


def text(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def some(*items: bytes) -> bytes:
    return bytes([len(items) + 1]) + b"".join(items)


class FakeBrokers:
    """Answers requests by their API key; what it was asked is kept."""

    def __init__(self, **answers: bytes) -> None:
        self.answers = answers
        self.asked: list[bytes] = []
        self.codes = [0]
        """The error codes of FindCoordinator, one after the other; the last one stays."""

    def ask_any(self, servers: str, request: bytes, decode: Any, **_: Any) -> Any:  # noqa: ANN401
        key = int.from_bytes(request[4:6], "big")
        if key == 10:
            code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
            host = struct.pack(">h", 4) + b"host"
            return decode(struct.pack(">iihhi", 1, 0, code, -1, 1) + host + struct.pack(">i", 9092))
        assert servers == "host:9092"
        self.asked.append(request)
        return decode(struct.pack(">ixi", 1, 0) + self.answers[f"api_{key}"])


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> FakeBrokers:
    brokers = FakeBrokers()
    for module in (client, kafka_request):
        monkeypatch.setattr(module, "ask_any", brokers.ask_any)
    monkeypatch.setattr(client, "_PAUSE_S", 0.0)
    return brokers


@pytest.fixture
def groups() -> ShareGroups:
    return ShareGroups("host:1", ClientSecurity(), 1_000)


def test_kip_932_groups_of_all_brokers_are_listed(
    brokers: FakeBrokers, groups: ShareGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ClusterEndpoints("id", 1, (BrokerEndpoints(1, "host:9092", ""),))
    monkeypatch.setattr(client, "discover", lambda *_, **__: cluster)
    listed = text(GROUP) + text("share") + text("Stable") + text("share") + b"\0"
    brokers.answers["api_16"] = b"\0\0" + some(listed) + b"\0"
    assert groups.all() == [(GROUP, "stable")]


def test_kip_932_a_group_is_described(brokers: FakeBrokers, groups: ShareGroups) -> None:
    assignment = some(bytes(16) + text("jobs") + some(b"\0\0\0\1", b"\0\0\0\0") + b"\0") + b"\0"
    member = b"".join(
        (
            text("m"),
            b"\0",
            b"\0\0\0\3",
            text("c"),
            text("/h"),
            some(text("jobs")),
            assignment,
            b"\0",
        )
    )
    described = b"".join(
        (b"\0\0\0", text(GROUP), text("Stable"), bytes(8), text("simple"), some(member), bytes(4))
    )
    brokers.answers["api_77"] = some(described + b"\0") + b"\0"
    members = (
        ShareMember(member_id="m", client_id="c", host="/h", partitions=(("jobs", 0), ("jobs", 1))),
    )
    expected = ShareGroup(name=GROUP, state="stable", assignor="simple", members=members)
    assert groups.describe(GROUP) == expected


def offset(partition: int, start: int, lag: int, code: int = 0) -> bytes:
    return struct.pack(">iqiqhxx", partition, start, 0, lag, code)


def offsets_answer(*partitions: bytes, code: int = 0) -> bytes:
    topics = some(text("jobs") + bytes(16) + some(*partitions) + b"\0")
    return some(text(GROUP) + topics + struct.pack(">hxx", code)) + b"\0"


def test_kip_932_offsets_that_nobody_knows_are_none(
    brokers: FakeBrokers, groups: ShareGroups
) -> None:
    brokers.answers["api_90"] = offsets_answer(
        offset(1, 5, 7), offset(0, -1, -1), offset(2, 9, 9, code=15)
    )
    assert [(one.partition, one.start, one.lag) for one in groups.offsets(GROUP)] == [
        (0, None, None),
        (1, 5, 7),
        (2, None, None),
    ]


def test_kip_932_the_error_of_a_group_is_raised(brokers: FakeBrokers, groups: ShareGroups) -> None:
    brokers.answers["api_90"] = offsets_answer(code=errors_pb2.GROUP_ID_NOT_FOUND)
    with pytest.raises(RequestFailed, match="GROUP_ID_NOT_FOUND"):
        groups.offsets(GROUP)


def test_kip_932_the_partitions_that_are_refused_are_named(
    brokers: FakeBrokers, groups: ShareGroups
) -> None:
    refused = struct.pack(">ih", 3, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION) + text("gone") + b"\0"
    topic = text("jobs") + bytes(16) + some(refused) + b"\0"
    brokers.answers["api_91"] = b"\0\0\0" + some(topic) + b"\0"
    with pytest.raises(RequestFailed, match="jobs-3: gone"):
        groups.set_offsets(GROUP, {("jobs", 3): 7})
    (asked,) = brokers.asked
    assert asked.endswith(
        text(GROUP) + some(text("jobs") + some(struct.pack(">iqx", 3, 7)) + b"\0") + b"\0"
    )


def test_kip_932_a_group_with_members_is_not_deleted(
    brokers: FakeBrokers, groups: ShareGroups
) -> None:
    answer = text(GROUP) + struct.pack(">hx", errors_pb2.NON_EMPTY_GROUP)
    brokers.answers["api_42"] = some(answer) + b"\0"
    with pytest.raises(RequestFailed, match="NON_EMPTY_GROUP: share group 'workers'"):
        groups.delete(GROUP)


def test_kip_932_a_coordinator_that_is_not_there_yet_is_asked_for_again(
    brokers: FakeBrokers, groups: ShareGroups
) -> None:
    brokers.codes = [errors_pb2.COORDINATOR_NOT_AVAILABLE, errors_pb2.NOT_COORDINATOR, 0]
    brokers.answers["api_42"] = some(text(GROUP) + b"\0\0\0") + b"\0"
    groups.delete(GROUP)
    assert len(brokers.asked) == 1


def test_kip_932_a_coordinator_that_never_comes_is_an_error(brokers: FakeBrokers) -> None:
    brokers.codes = [errors_pb2.COORDINATOR_NOT_AVAILABLE]
    with pytest.raises(ClusterUnreachable, match="'workers' has no coordinator"):
        ShareGroups("host:1", ClientSecurity(), 0).delete(GROUP)


def test_kip_932_a_cut_answer_is_malformed(brokers: FakeBrokers, groups: ShareGroups) -> None:
    brokers.answers["api_90"] = offsets_answer(offset(1, 5, 7))[:-20]
    with pytest.raises(MalformedResponse):
        groups.offsets(GROUP)


# -- what is shown ---------------------------------------------------------------------------------


def view(in_flight: int | None) -> ShareGroupView:
    member = ShareMember(member_id="m", client_id="c", host="/h", partitions=(("jobs", 0),))
    group = ShareGroup(name=GROUP, state="stable", assignor="simple", members=(member,))
    offsets = [
        ShareOffset(topic="jobs", partition=0, start=3, lag=4),
        ShareOffset(topic="jobs", partition=1, start=None, lag=None),
    ]
    return ShareGroupView(group, offsets, in_flight)


def test_a_group_is_shown_with_its_lag(capsys: pytest.CaptureFixture[str]) -> None:
    view(2).show()
    said = capsys.readouterr().out
    assert "workers: stable, 1 members, lag 4, 2 in flight" in said
    document = view(None).as_document()
    assert (document["lag"], document["in_flight"]) == (4, None)


def test_records_in_flight_are_added_up_over_brokers() -> None:
    name = "ShareGroupMetrics", "InFlightMessageCount"
    metrics = [
        Metric(1, *name, {"group": GROUP}, 3.0),
        Metric(2, *name, {"group": GROUP}, 4.0),
        Metric(2, *name, {"group": "others"}, 9.0),
        Metric(2, "ShareGroupMetrics", "RecordsAcquired", {}, 9.0),
    ]
    assert in_flight_of(metrics, GROUP) == 7
    assert in_flight_of(None, GROUP) is None


def test_a_reset_without_one_clear_wish_is_refused() -> None:
    asked = ["reset-offsets", "--bootstrap-server", "127.0.0.1:1", "--group", "g"]
    result = CliRunner().invoke(share_groups, asked)
    assert "give exactly one of --to-earliest" in result.output
