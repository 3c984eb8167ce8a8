"""Telemetry of clients (KIP-714): who is to push what, what is refused, and what is shown."""

import uuid
from collections.abc import Mapping
from typing import Any

import immutables
import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.client_metrics_keys import match_patterns
from quorate.broker.log.batches.codecs import compress
from quorate.broker.telemetry import pushed_figures
from quorate.broker.telemetry.client_instances import (
    ClientConnection,
    ClientInstance,
    ClientInstances,
)
from quorate.broker.telemetry.client_telemetry import ClientTelemetry, Push, PushingClient
from quorate.broker.telemetry.payload import POINTS_MAX, InvalidPayload, decode
from quorate.broker.telemetry.pushed_figures import OVERFLOW, PushedFigures
from quorate.broker.telemetry.subscriptions import (
    ClientAttributes,
    ClientSubscription,
    Subscription,
    kafka_text,
    subscription_of,
)
from quorate.common.configuration import ConfigError
from quorate.metadata_log.image import Changes, EntityKey, Image
from quorate_proto.v1 import errors_pb2
from quorate_proto.v1.otlp_metrics_pb2 import OtlpMetricsData, OtlpSum
from tests.support.at_once import AtOnce

ID = uuid.UUID("6b1b2c00-0000-4000-8000-00000000002a")
MAX_BYTES = 1 << 20
ALL = ClientSubscription(1, ("*",), 1_000)
CLIENT = ClientAttributes("id", "app-1", "apache-kafka-java", "4.3.1", "10.0.0.7", "40001")


def image(subscriptions: Mapping[str, Mapping[str, str]]) -> Image:
    configs = {
        EntityKey(("client-metrics", name)): immutables.Map(keys)
        for name, keys in subscriptions.items()
    }
    configs[EntityKey(("topic", "t"))] = immutables.Map({"retention.ms": "1"})
    return Image(configs=immutables.Map(configs))


def payload(
    *points: tuple[str, float, dict[str, str]], temporality: int = 0, monotonic: bool = False
) -> bytes:
    """OTLP with one metric for each of the points: a gauge, or with a temporality a sum."""
    data = OtlpMetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    for name, value, attributes in points:
        metric = metrics.add(name=name)
        if temporality:
            metric.sum.CopyFrom(
                OtlpSum(aggregation_temporality=temporality, is_monotonic=monotonic)
            )
        point = (metric.sum if temporality else metric.gauge).data_points.add(as_double=value)
        for key, text in attributes.items():
            point.attributes.add(key=key).value.string_value = text
    return data.SerializeToString()


class Bench:
    """Telemetry with a clock that stands, and one client."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.telemetry = ClientTelemetry(lambda: self.now_ms, lambda: ID, AtOnce())
        self.connection = ClientConnection(40_001)

    def subscribe(self, **keys: str) -> None:
        named = {key.replace("_", "."): value for key, value in keys.items()}
        changed = frozenset({EntityKey(("client-metrics", "s"))})
        self.telemetry.on_image(image({"s": named}), Changes(configs=changed))

    @property
    def client(self) -> PushingClient:
        return PushingClient("app-1", "10.0.0.7", self.connection)

    def ask(self, instance_id: uuid.UUID | None = ID) -> ClientSubscription:
        return self.telemetry.ask(self.client, instance_id)[1]

    async def push(self, **changed: Any) -> None:  # noqa: ANN401
        known = {
            "instance_id": ID,
            "subscription_id": 0,
            "is_terminating": False,
            "compression_type": 0,
            "metrics": b"",
        }
        await self.telemetry.push(self.client, Push(**{**known, **changed}), MAX_BYTES)

    def shown(self) -> dict[tuple[str, ...], float]:
        return {
            (one.family.name.removeprefix("quorate_client_telemetry"), *one.labels): one.value  # type: ignore[misc]
            for one in self.telemetry.samples()
        }


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def refused(code: int, pushing: Any) -> None:  # noqa: ANN401
    with pytest.raises(KafkaError) as caught:
        await pushing
    assert caught.value.code == code


# --- subscriptions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "does"),
    [
        ("", True),
        ("client_id=app-.*", True),
        ("client_id=app-.*,client_software_version=4\\..*", True),
        ("client_id=app-.*,client_software_version=3\\..*", False),
        ("client_id=app", False),
        ("client_source_address=10.0.0.7,client_source_port=40001", True),
        ("client_instance_id=other", False),
    ],
)
def test_kip_714_a_subscription_is_for_clients_whose_attributes_all_match(
    match: str, does: bool
) -> None:
    assert Subscription.of({"match": match}).matches(CLIENT) == does


def test_kip_714_no_regular_expression_sees_a_very_long_attribute() -> None:
    long = CLIENT._replace(client_id="a" * 257)
    assert not Subscription.of({"match": "client_id=a*"}).matches(long)
    assert Subscription.of({"match": "client_software_name=apache.*"}).matches(long)


@pytest.mark.parametrize(
    "match", ["client_id", "client_id=", "client_id=a=b", "rack=a", "client_id=("]
)
def test_kip_714_a_malformed_match_is_refused(match: str) -> None:
    with pytest.raises(ConfigError, match="match: "):
        match_patterns(match)


def test_kip_714_what_matches_is_put_together() -> None:
    some = Subscription.of({"metrics": "a.,b.", "interval.ms": "60000"})
    more = Subscription.of({"metrics": "b.,c.", "interval.ms": "30000"})
    other = Subscription.of({"metrics": "d.", "interval.ms": "100", "match": "client_id=x"})
    found = subscription_of(CLIENT, ID, [some, more, other])
    assert (found.metrics, found.interval_ms) == (("a.", "b.", "c."), 30_000)
    everything = Subscription.of({"metrics": "*"})
    assert subscription_of(CLIENT, ID, [some, everything]).metrics == ("*",)
    nothing = subscription_of(CLIENT, ID, [other])
    assert (nothing.metrics, nothing.interval_ms) == ((), 300_000)


def test_kip_714_the_subscription_id_changes_with_what_is_subscribed_to() -> None:
    of = [{"metrics": "a."}, {"metrics": "b."}, {"metrics": "a.", "interval.ms": "100"}]
    ids = [subscription_of(CLIENT, ID, [Subscription.of(one)]).subscription_id for one in of]
    assert len(set(ids)) == 3
    assert all(-(2**31) <= one < 2**31 for one in ids)
    again = subscription_of(CLIENT, ID, [Subscription.of({"metrics": "a."})])
    assert again.subscription_id == ids[0]
    other = subscription_of(CLIENT, uuid.UUID(int=1), [Subscription.of({"metrics": "a."})])
    assert other.subscription_id != ids[0]


def test_kip_714_the_id_of_a_client_is_written_as_kafka_writes_it() -> None:
    assert kafka_text(uuid.UUID(int=0)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert kafka_text(uuid.UUID(int=2**128 - 1)) == "_____________________w"


# --- when a client may ask and push --------------------------------------------------------------


async def test_kip_714_a_client_without_an_id_gets_one(bench: Bench) -> None:
    assert bench.telemetry.ask(bench.client, None)[0] == ID
    other = uuid.UUID(int=99)
    assert bench.telemetry.ask(bench.client, other)[0] == other


async def test_kip_714_a_client_waits_for_its_interval(bench: Bench) -> None:
    bench.subscribe(metrics="*", interval_ms="1000")
    known = bench.ask().subscription_id
    with pytest.raises(KafkaError):
        bench.ask()
    await bench.push(subscription_id=known)  # The first may come at any time.
    await refused(errors_pb2.THROTTLING_QUOTA_EXCEEDED, bench.push(subscription_id=known))
    bench.now_ms += 1_000
    await bench.push(subscription_id=known)
    assert bench.shown()["_throttled_total",] == 2


async def test_kip_714_the_last_push_may_come_early_and_nothing_after_it(bench: Bench) -> None:
    bench.subscribe(metrics="*", interval_ms="1000")
    known = bench.ask().subscription_id
    await bench.push(subscription_id=known)
    await bench.push(subscription_id=known, is_terminating=True)
    bench.now_ms += 1_000
    await refused(errors_pb2.INVALID_REQUEST, bench.push(subscription_id=known))
    bench.connection = ClientConnection(40_002)  # Kafka forgets it when its connection closes.
    await bench.push(subscription_id=known)


async def test_kip_714_a_changed_subscription_is_asked_for_at_once(bench: Bench) -> None:
    bench.subscribe(metrics="*", interval_ms="1000")
    known = bench.ask().subscription_id
    bench.subscribe(metrics="a.", interval_ms="1000")
    await refused(errors_pb2.UNKNOWN_SUBSCRIPTION_ID, bench.push(subscription_id=known))
    changed = bench.ask()
    assert changed.metrics == ("a.",)
    bench.now_ms += 1_000
    await bench.push(subscription_id=changed.subscription_id)
    assert bench.shown()["_unknown_subscriptions_total",] == 1


async def test_kip_714_a_change_of_a_topic_changes_no_subscription(bench: Bench) -> None:
    bench.subscribe(metrics="*")
    of_topic = frozenset({EntityKey(("topic", "t"))})
    bench.telemetry.on_image(image({}), Changes(configs=of_topic))
    assert bench.telemetry.subscription_names == ("s",)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"instance_id": uuid.UUID(int=0)}, errors_pb2.INVALID_REQUEST),
        ({"instance_id": None}, errors_pb2.INVALID_REQUEST),
        ({"compression_type": 5}, errors_pb2.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(MAX_BYTES + 1)}, errors_pb2.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\xff"}, errors_pb2.INVALID_RECORD),
        ({"metrics": b"\xff", "compression_type": 4}, errors_pb2.INVALID_RECORD),
    ],
)
async def test_kip_714_pushes_that_are_refused(
    bench: Bench, changed: dict[str, Any], code: int
) -> None:
    known = bench.ask().subscription_id
    await refused(code, bench.push(**{"subscription_id": known, **changed}))


def test_kip_714_silent_clients_and_the_oldest_of_too_many_are_forgotten() -> None:
    instances = ClientInstances(instances_max=2)
    made = [instance(number) for number in range(3)]
    for one in made:
        instances.heard(one, 0)
    assert instances.find(made[0].instance_id, 0) is None
    instances.heard(made[1], 30_000)
    instances.forget_expired(60_000)
    assert (len(instances), instances.find(made[1].instance_id, 60_000)) == (1, made[1])
    slow = ClientSubscription(1, (), 100_000)
    made[1].subscription = slow
    instances.heard(made[1], 60_000)
    assert instances.find(made[1].instance_id, 60_000 + 299_999) is made[1]
    assert instances.find(made[1].instance_id, 60_000 + 300_000) is None


def instance(number: int) -> ClientInstance:
    return ClientInstance(uuid.UUID(int=number + 2), f"c{number}", ClientConnection(), ALL, 0)


# --- payloads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", range(5))
def test_kip_714_payloads_of_every_codec_are_read(codec: int) -> None:
    plain = payload(("a.rate", 2.5, {"topic": "t", "node": "1"}))
    decoded = decode(codec, compress(codec, plain), MAX_BYTES, ALL)
    ((metric, attributes, value, *_),) = decoded.points
    assert (metric, attributes, value) == ("a.rate", "node=1,topic=t", 2.5)


@pytest.mark.parametrize("codec", range(1, 5))
def test_kip_714_decompression_is_bounded(codec: int) -> None:
    with pytest.raises(InvalidPayload, match="more than"):
        decode(codec, compress(codec, bytes(MAX_BYTES + 1)), MAX_BYTES, ALL)


def test_kip_714_what_is_not_subscribed_to_is_left_out() -> None:
    data = payload(("a.b", 1, {}), ("ab", 2, {}), ("c.d", 3, {}))
    some = ClientSubscription(1, ("a.", "c."), 1_000)
    assert [one.metric for one in decode(0, data, MAX_BYTES, some).points] == ["a.b", "c.d"]
    none = ClientSubscription(1, (), 1_000)
    assert decode(0, data, MAX_BYTES, none).points == ()


def test_kip_714_points_and_texts_are_bounded() -> None:
    many = payload(*((f"a{number}", 1.0, {}) for number in range(POINTS_MAX + 3)))
    decoded = decode(0, many, MAX_BYTES, ALL)
    assert (len(decoded.points), decoded.passed_over) == (POINTS_MAX, 3)
    long = payload(("n" * 257, 1, {}), ("a", 1, {"k": "v" * 511}), ("b", 1, {}))
    many_attributes = payload(("c", 1, {str(number): "" for number in range(33)}))
    decoded = decode(0, long + many_attributes, MAX_BYTES, ALL)
    assert ([one.metric for one in decoded.points], decoded.passed_over) == (["b"], 3)


def test_kip_714_very_many_empty_messages_are_refused() -> None:
    for empty in (b"\x0a\x00" * 10_001, b"\x0a\x02\x12\x00" * 5_001):
        with pytest.raises(InvalidPayload, match="more than 10000"):
            decode(0, empty, MAX_BYTES, ALL)


# --- what is shown -------------------------------------------------------------------------------


async def test_kip_714_values_are_replaced_and_deltas_added_up(bench: Bench) -> None:
    bench.subscribe(metrics="*", interval_ms="100")
    known = bench.ask().subscription_id
    for value in (2.0, 3.0):
        sums = payload(("sent", value, {}), temporality=1, monotonic=True)
        gauge = payload(("lag", value, {}))
        await bench.push(subscription_id=known, metrics=sums + gauge)
        bench.now_ms += 100
    labels = ("app-1", kafka_text(ID), "")
    assert bench.shown()["_total", "sent", *labels] == 5
    assert bench.shown()["_value", "lag", *labels] == 3
    total = payload(("sent", 9.0, {}), temporality=2, monotonic=True)
    await bench.push(subscription_id=known, metrics=total)
    assert bench.shown()["_total", "sent", *labels] == 9


async def test_kip_714_a_silent_client_is_shown_no_more(bench: Bench) -> None:
    bench.subscribe(metrics="*", interval_ms="100")
    await bench.push(subscription_id=bench.ask().subscription_id, metrics=payload(("lag", 1, {})))
    labels = ("_value", "lag", "app-1", kafka_text(ID), "")
    bench.now_ms += 59_999
    assert labels in bench.shown()
    bench.now_ms += 10_001
    assert labels not in bench.shown()
    assert bench.shown()["_instances",] == 0


def test_kip_714_clients_beyond_the_limit_share_labels() -> None:
    figures = PushedFigures(instances_shown_max=1)
    counted = decode(
        0,
        payload(("sent", 2, {"topic": "t"}), temporality=1, monotonic=True)
        + payload(("lag", 7, {})),
        MAX_BYTES,
        ALL,
    )
    for number in range(3):
        figures.take(instance(number), counted)
    values = {one.labels: one.value for one in figures.samples()}
    assert values["sent", OVERFLOW, OVERFLOW, ""] == 4
    assert ("lag", OVERFLOW, OVERFLOW, "") not in values
    assert (values["sent", "c0", kafka_text(instance(0).instance_id), "topic=t"], values[()]) == (
        2,
        2,
    )


def test_kip_714_the_series_of_a_client_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushed_figures, "SERIES_MAX", 2)
    figures = PushedFigures()
    points = decode(0, payload(("a", 1, {}), ("b", 1, {}), ("c", 1, {})), MAX_BYTES, ALL)
    figures.take(instance(0), points)
    figures.take(instance(0), points)
    assert len(list(figures.samples())) == 2 + 1
    assert figures.passed_over == 2
