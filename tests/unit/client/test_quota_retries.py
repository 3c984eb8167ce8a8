"""What the admin client does when it is refused over a quota (Q10)."""

from collections.abc import Iterator
from typing import Any

import pytest

from quorate.client import ThrottlingQuotaExceededError
from quorate.client.admin import AdminClient
from quorate.client.admin_connection import ClusterConnection, Pause
from quorate.client.admin_options import read_admin_options
from quorate.client.call_steps import Steps, ToController, WaitBeforeRetry
from quorate.client.calls import topic_calls as topics
from quorate.client.errors import RequestFailed
from quorate.client.results import (
    CreatePartitionsOptions,
    CreateTopicsOptions,
    DeleteTopicsOptions,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from quorate.client.security import InvalidOption
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.admin_cluster import FakeCluster, serving

OVER = errors_pb2.THROTTLING_QUOTA_EXCEEDED
NO_TIME = False
OPTED_OUT = {"retry.on.quota.violation": "false"}


def answer(throttle_time_ms: int = 0, **codes: int) -> admin_pb2.CreateTopicsResponse:
    return admin_pb2.CreateTopicsResponse(
        topics=[admin_pb2.TopicResult(name=name, error_code=code) for name, code in codes.items()],
        throttle_time_ms=throttle_time_ms,
    )


def asked(question: Any) -> list[str]:  # noqa: ANN401
    """Names in a question to the controller."""
    assert isinstance(question, ToController)
    request: Any = question.request
    if isinstance(request, admin_pb2.DeleteTopicsRequest):
        return list(request.names)
    return [topic.name for topic in request.topics]


def ended(steps: Steps[list[TopicResult]], last_answer: object) -> list[TopicResult]:
    with pytest.raises(StopIteration) as end:
        steps.send(last_answer)
    results: list[TopicResult] = end.value.value
    return results


CALLS = {
    "create": lambda retry: topics.create_topics(
        [NewTopic(name=name) for name in "abc"], CreateTopicsOptions(retry_on_quota_violation=retry)
    ),
    "grow": lambda retry: topics.create_partitions(
        [NewPartitions(name=name, count=2) for name in "abc"],
        CreatePartitionsOptions(retry_on_quota_violation=retry),
    ),
    "delete": lambda retry: topics.delete_topics(
        list("abc"), DeleteTopicsOptions(retry_on_quota_violation=retry)
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_q10_what_is_over_the_quota_is_tried_again_after_the_time_it_was_told(call: str) -> None:
    steps = CALLS[call](True)
    assert asked(next(steps)) == ["a", "b", "c"]
    assert steps.send(answer(700, a=OVER, b=0, c=OVER)) == WaitBeforeRetry(700)
    assert asked(steps.send(True)) == ["a", "c"]
    assert steps.send(answer(300, a=0, c=OVER)) == WaitBeforeRetry(300)
    assert asked(steps.send(True)) == ["c"]
    results = ended(steps, answer(c=errors_pb2.TOPIC_ALREADY_EXISTS))
    assert [(one.name, one.error) for one in results] == [
        ("a", "NONE"),
        ("b", "NONE"),
        ("c", "TOPIC_ALREADY_EXISTS"),
    ]


def test_q10_a_client_that_is_refused_again_and_again_asks_less_often() -> None:
    steps = CALLS["create"](True)
    next(steps)
    waited = []
    for _ in range(6):
        waited.append(steps.send(answer(16, a=OVER, b=OVER, c=OVER)))
        steps.send(True)
    assert waited == [WaitBeforeRetry(ms) for ms in (100, 200, 400, 800, 1_000, 1_000)]
    assert topics.retry_wait_ms(2_500, attempts=100) == 2_500


@pytest.mark.parametrize("call", CALLS)
def test_q10_who_opts_out_is_told_at_once_and_when_to_try_again(call: str) -> None:
    steps = CALLS[call](False)
    next(steps)
    good, bad, other = ended(steps, answer(700, a=0, b=OVER, c=37))
    assert good.raise_for_error().ok
    assert good.throttle_time_ms == 0
    with pytest.raises(ThrottlingQuotaExceededError) as raised:
        bad.raise_for_error()
    assert (raised.value.throttle_time_ms, raised.value.code) == (700, OVER)
    with pytest.raises(RequestFailed) as failed:
        other.raise_for_error()
    assert not isinstance(failed.value, ThrottlingQuotaExceededError)


def test_q10_without_time_left_the_refusal_is_the_result() -> None:
    steps = CALLS["create"](True)
    next(steps)
    assert steps.send(answer(5_000, a=0, b=OVER, c=0)) == WaitBeforeRetry(5_000)
    results = ended(steps, NO_TIME)
    assert [one.is_over_quota for one in results] == [False, True, False]
    assert results[1].throttle_time_ms == 5_000


def test_q10_retrying_is_the_default() -> None:
    for options in (CreateTopicsOptions(), CreatePartitionsOptions(), DeleteTopicsOptions()):
        assert options.retry_on_quota_violation


def waiting(timeout_ms: int, time_ms: int, *, retry: bool = True) -> Any:  # noqa: ANN401
    def steps() -> Steps[bool]:
        waited: bool = yield WaitBeforeRetry(time_ms)
        return waited

    connection = ClusterConnection(
        "c", timeout_ms=timeout_ms, client_id="x", retry_on_quota_violation=retry
    )
    return connection.carry_out(steps())


def test_q10_a_call_waits_no_longer_than_it_may_take() -> None:
    effects = waiting(10_000, 5_000)
    assert next(effects) == Pause(5.0)
    with pytest.raises(StopIteration) as end:
        next(effects)
    assert end.value.value is True
    with pytest.raises(StopIteration) as end:
        next(waiting(1_000, 5_000))
    assert end.value.value is False


def test_q10_a_client_that_opts_out_waits_for_no_quota() -> None:
    with pytest.raises(StopIteration) as end:
        next(waiting(10_000, 5_000, retry=False))
    assert end.value.value is False


def test_q10_a_client_may_opt_out_for_all_its_calls(cluster: FakeCluster) -> None:
    for options in ({"retry_on_quota_violation": False}, {"options": OPTED_OUT}):
        cluster.over_quota.append(None)
        with AdminClient(grpc_addresses=cluster.addresses, **options) as admin:
            assert admin.create_topics([NewTopic(name="t")])[0].is_over_quota
    assert not cluster.brokers[0].created


def test_q10_kafkas_option_says_how_long_a_call_may_take() -> None:
    assert read_admin_options({}) == (30_000, True, {})
    own = {"default.api.timeout.ms": "5000", **OPTED_OUT}
    assert read_admin_options({**own, "sasl.username": "a"}) == (
        5_000,
        False,
        {"sasl.username": "a"},
    )
    assert read_admin_options(own, timeout_ms=7, retry_on_quota_violation=True)[:2] == (7, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("default.api.timeout.ms", "0"),
        ("default.api.timeout.ms", "-1"),
        ("default.api.timeout.ms", "soon"),
        ("retry.on.quota.violation", "perhaps"),
    ],
)
def test_q10_an_option_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name}={value}"):
        read_admin_options({name: value})


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with serving(FakeCluster(1, controller_id=1)) as running:
        yield running


def test_q10_a_client_over_its_quota_gets_through(cluster: FakeCluster) -> None:
    cluster.over_quota.extend([None] * 2)
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        assert admin.create_topics([NewTopic(name="t")])[0].ok
    assert cluster.brokers[0].created == ["t"]
