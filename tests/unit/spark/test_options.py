"""The contract of Spark's Kafka source, as a table of options and what becomes of them."""

import re

import pytest

from quorate.spark.errors import OptionError
from quorate.spark.options.offset_bounds import AtEdge, AtOffsets, AtTimestamp
from quorate.spark.options.read_options import ReadOptions, Subscription, parse_options
from quorate.spark.ranges import EARLIEST, LATEST, TopicPartition

SERVERS = {"kafka.bootstrap.servers": "b:9092"}
ORDERS = {**SERVERS, "subscribe": "orders"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parse(**changes: str) -> ReadOptions:
    """Options of a topic, changed; a double underscore in a name stands for a dot."""
    return parse_options({**ORDERS, **{k.replace("__", "."): v for k, v in changes.items()}})


def test_defaults() -> None:
    options = parse_options(ORDERS)
    assert options == ReadOptions(
        "b:9092", Subscription(topics=("orders",)), AtEdge(EARLIEST), AtEdge(LATEST)
    )
    assert options.fail_on_data_loss
    assert not options.include_headers


@pytest.mark.parametrize(
    ("given", "subscription"),
    [
        ({"subscribe": "a, b,a"}, Subscription(topics=("a", "b"))),
        ({"subscribePattern": "orders-.*"}, Subscription(pattern="orders-.*")),
        ({"assign": '{"a":[1,0,1],"b":[2]}'}, Subscription(partitions={"a": (0, 1), "b": (2,)})),
    ],
)
def test_subscriptions(given: dict[str, str], subscription: Subscription) -> None:
    assert parse_options({**SERVERS, **given}).subscription == subscription


@pytest.mark.parametrize(
    ("given", "starting", "ending"),
    [
        ({"startingOffsets": "EARLIEST"}, AtEdge(EARLIEST), AtEdge(LATEST)),
        (
            {"startingOffsets": '{"t":{"0":-2,"1":7}}', "endingOffsets": '{"t":{"0":-1,"1":7}}'},
            AtOffsets({T0: EARLIEST, T1: 7}),
            AtOffsets({T0: LATEST, T1: 7}),
        ),
        (
            {"startingTimestamp": "5", "endingTimestamp": "9"},
            AtTimestamp(everywhere_ms=5, absent_is_latest=False),
            AtTimestamp(everywhere_ms=9),
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t":{"0":5}}',
                "startingOffsetsByTimestampStrategy": "latest",
                "endingOffsetsByTimestamp": '{"t":{"0":9}}',
            },
            AtTimestamp(timestamps_ms={T0: 5}),
            AtTimestamp(timestamps_ms={T0: 9}),
        ),
        (
            {
                "startingTimestamp": "5",
                "startingOffsetsByTimestamp": '{"t":{"0":6}}',
                "startingOffsets": '{"t":{"0":7}}',
                "endingOffsetsByTimestamp": '{"t":{"0":6}}',
                "endingOffsets": '{"t":{"0":7}}',
            },
            AtTimestamp(everywhere_ms=5, absent_is_latest=False),
            AtTimestamp(timestamps_ms={T0: 6}),
        ),
    ],
)
def test_bounds(given: dict[str, str], starting: object, ending: object) -> None:
    options = parse(**given)
    assert (options.starting, options.ending) == (starting, ending)


def test_keys_are_case_insensitive_and_client_settings_pass() -> None:
    options = parse(
        FAILONDATALOSS="False",
        includeheaders="TRUE",
        kafka__client__id="x",
        kafka__security__protocol="plaintext",
        minpartitions="9",
        maxRecordsPerPartition="100",
        groupIdPrefix="ignored",
    )
    assert not options.fail_on_data_loss
    assert options.include_headers
    assert (options.min_partitions, options.max_records_per_partition) == (9, 100)


def test_bootstrap_servers_may_go_without_the_prefix() -> None:
    options = parse_options({"bootstrap.servers": "b:1", "subscribe": "t"})
    assert options.bootstrap_servers == "b:1"


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "no servers": ({"subscribe": "t"}, "kafka.bootstrap.servers is missing"),
    "no subscription": (SERVERS, "exactly one of subscribe, subscribePattern, assign"),
    "two subscriptions": (
        {**ORDERS, "assign": '{"a":[0]}'},
        "exactly one of .* subscribe and assign are given",
    ),
    "unknown option": (
        {**ORDERS, "startingOffset": "earliest"},
        "unknown option 'startingoffset': did you mean 'startingOffsets'",
    ),
    "far from any option": ({**ORDERS, "zzz": "1"}, "unknown option 'zzz': did you mean '"),
    "empty subscribe": ({**SERVERS, "subscribe": " , "}, "subscribe names no topic"),
    "empty pattern": ({**SERVERS, "subscribePattern": ""}, "subscribePattern is empty"),
    "bad pattern": ({**SERVERS, "subscribePattern": "("}, "subscribePattern is no pattern"),
    "assign is no JSON": ({**SERVERS, "assign": "a"}, "option assign is no JSON"),
    "assign is a list": ({**SERVERS, "assign": "[0]"}, "option assign is no JSON object"),
    "assign without numbers": ({**SERVERS, "assign": '{"a":["0"]}'}, "'a' is no list of partition"),
    "assign of nothing": ({**SERVERS, "assign": '{"a":[]}'}, "assign names no partition"),
    "start at latest": ({**ORDERS, "startingOffsets": "latest"}, "startingOffsets is 'latest'"),
    "end at earliest": ({**ORDERS, "endingOffsets": "earliest"}, "endingOffsets is 'earliest'"),
    "start at -1": (
        {**ORDERS, "startingOffsets": '{"t":{"0":-1}}'},
        r"startingOffsets: latest \(-1\) for t-0",
    ),
    "end at -2": (
        {**ORDERS, "endingOffsets": '{"t":{"0":-2}}'},
        r"endingOffsets: earliest \(-2\) for t-0",
    ),
    "offset -3": ({**ORDERS, "startingOffsets": '{"t":{"0":-3}}'}, "-3 for t-0 is no offset"),
    "a word": ({**ORDERS, "startingOffsets": "first"}, "must be 'earliest' or JSON"),
    "broken JSON": ({**ORDERS, "startingOffsets": "{"}, "startingOffsets is no JSON"),
    "no partitions": ({**ORDERS, "startingOffsets": '{"t":5}'}, "'t' needs partitions"),
    "empty JSON": ({**ORDERS, "startingOffsets": "{}"}, "startingOffsets names no partition"),
    "text offset": ({**ORDERS, "startingOffsets": '{"t":{"0":"5"}}'}, "'5' for t-0 is no whole"),
    "true offset": ({**ORDERS, "startingOffsets": '{"t":{"0":true}}'}, "True for t-0 is no whole"),
    "text partition": ({**ORDERS, "startingOffsets": '{"t":{"x":5}}'}, "'x' of topic 't'"),
    "other partitions": (
        {
            **ORDERS,
            "startingOffsets": '{"t":{"0":1,"1":1}}',
            "endingOffsets": '{"t":{"0":1,"2":1}}',
        },
        "only one side names t-1, t-2",
    ),
    "end before start": (
        {**ORDERS, "startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":8}}'},
        "endingOffsets 8 of t-0 is before startingOffsets 9",
    ),
    "timestamp": ({**ORDERS, "startingTimestamp": "yesterday"}, "startingTimestamp is 'yesterday'"),
    "negative time": ({**ORDERS, "endingOffsetsByTimestamp": '{"t":{"0":-5}}'}, "-5 for t-0"),
    "strategy": ({**ORDERS, "startingOffsetsByTimestampStrategy": "none"}, "one of error, latest"),
    "boolean": ({**ORDERS, "failOnDataLoss": "yes"}, "failOnDataLoss is 'yes'"),
    "zero partitions": ({**ORDERS, "minPartitions": "0"}, "minPartitions is '0'"),
    "number": ({**ORDERS, "maxRecordsPerPartition": "1.5"}, "maxRecordsPerPartition is '1.5'"),
    "security": ({**ORDERS, "kafka.security.protocol": "TLS"}, "security.protocol is 'TLS'"),
    "user": ({**ORDERS, "kafka.security.protocol": "SASL_SSL"}, "needs sasl.username"),
    "misspelt": ({**ORDERS, "kafka.ssl.ca.locaton": "x"}, "did you mean 'ssl.ca.location'"),
    "deserializer": ({**ORDERS, "kafka.value.deserializer": "x"}, "values are binary"),
    "offset reset": ({**ORDERS, "kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as refusal:
        parse_options(given)
    assert re.search(message, str(refusal.value)), refusal.value


def test_the_clients_security_settings_are_those_of_kafka() -> None:
    options = parse_options(
        {
            **ORDERS,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.ca.location": "/ca.pem",
            "kafka.sasl.username": "ann",
            "kafka.sasl.password": "secret",
            "kafka.grpc.security.protocol": "SSL",
            "kafka.fetch.min.bytes": "7",
        }
    )
    assert options.security.kafka.username == "ann"
    assert (options.security.grpc.protocol, options.security.grpc.ca) == ("SSL", "/ca.pem")
    assert "secret" not in repr(options)
