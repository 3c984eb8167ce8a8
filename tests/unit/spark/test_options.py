"""The contract of Spark's Kafka source, as a table of options and what becomes of them."""

import re

import pytest

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import OptionError
from quorate.spark.offset_ranges import EARLIEST, LATEST
from quorate.spark.options.connection_options import ConnectionOptions
from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.offset_positions import (
    AtTime,
    BeforeNow,
    ByPartition,
    Everywhere,
    FromEdge,
)
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.option_table import INCLUDE_HEADERS, STARTING_OFFSETS
from quorate.spark.options.read_options import ReadOptions, parse_read_options
from quorate.spark.options.topic_subscription import Subscription

SERVERS = {"kafka.bootstrap.servers": "b:9092"}
ORDERS = {**SERVERS, "subscribe": "orders"}
EVERYTHING, TO_THE_END = Everywhere(FromEdge(EARLIEST)), Everywhere(FromEdge(LATEST))
RELATIVE = Everywhere(BeforeNow(7_200_000)), Everywhere(FromEdge(LATEST, 1))
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parse(**changes: str) -> ReadOptions:
    """Options of a topic, changed; a double underscore in a name stands for a dot."""
    return parse_options({**ORDERS, **{k.replace("__", "."): v for k, v in changes.items()}})


def parse_options(options: dict[str, str], scope: Scope = Scope.BATCH) -> ReadOptions:
    return parse_read_options(options, scope)


def test_defaults() -> None:
    options = parse_options(ORDERS)
    assert options == ReadOptions(
        connection=ConnectionOptions("b:9092", retries_max=10, retry_interval_ms=100),
        subscription=Subscription(topics=("orders",)),
        starting=Everywhere(FromEdge(EARLIEST)),
        ending=Everywhere(FromEdge(LATEST)),
        absent_start_is_latest=False,
        fail_on_data_loss=True,
        include_headers=False,
        min_partitions=None,
        max_records_per_partition=None,
        frame_timeout_ms=120_000,
    )


def test_a_stream_starts_at_the_latest_offset() -> None:
    options = parse_options(ORDERS, Scope.STREAM)
    assert options.starting == Everywhere(FromEdge(LATEST))
    given = {**ORDERS, "startingOffsets": '{"t":{"0":-1}}'}
    assert parse_options(given, Scope.STREAM).starting == ByPartition({T0: FromEdge(LATEST)})


@pytest.mark.parametrize(
    ("given", "starting", "ending"),
    [
        ({}, EVERYTHING, TO_THE_END),
        ({"startingOffsets": "-2h", "endingOffsets": "latest-1"}, *RELATIVE),
        (
            {
                "startingTimestamp": "5",
                "startingOffsetsByTimestamp": '{"t":{"0":6}}',
                "startingOffsets": '{"t":{"0":7}}',
                "endingOffsetsByTimestamp": '{"t":{"0":6}}',
                "endingOffsets": '{"t":{"0":7}}',
            },
            Everywhere(AtTime(5)),
            ByPartition({T0: AtTime(6)}),
        ),
    ],
)
def test_the_order_of_options_decides(
    given: dict[str, str], starting: object, ending: object
) -> None:
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
    assert options.connection.bootstrap_servers == "b:1"


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
    "start at latest": (
        {**ORDERS, "startingOffsets": "latest"},
        r"startingOffsets is latest \(-1\): a batch",
    ),
    "end at earliest": (
        {**ORDERS, "endingOffsets": "earliest"},
        r"endingOffsets is earliest \(-2\): a batch",
    ),
    "start at -1": (
        {**ORDERS, "startingOffsets": '{"t":{"0":-1}}'},
        r"startingOffsets is latest \(-1\) for t-0",
    ),
    "end at -2": (
        {**ORDERS, "endingOffsets": '{"t":{"0":-2}}'},
        r"endingOffsets is earliest \(-2\) for t-0",
    ),
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
    "security": ({**ORDERS, "kafka.security.protocol": "TLS"}, "security.protocol is 'TLS'"),
    "user": ({**ORDERS, "kafka.security.protocol": "SASL_SSL"}, "needs sasl.username"),
    "misspelt": ({**ORDERS, "kafka.ssl.ca.locaton": "x"}, "did you mean 'kafka.ssl.ca.location'"),
    "misspelt protocol": (
        {**ORDERS, "kafka.securty.protocol": "SSL"},
        "did you mean 'kafka.security.protocol'",
    ),
    "without its prefix": (
        {**ORDERS, "security.protocol": "SSL"},
        "did you mean 'kafka.security.protocol'",
    ),
    "Java's store": ({**ORDERS, "kafka.ssl.truststore.type": "JKS"}, "'JKS': .* are PEM files"),
    "a Java store": ({**ORDERS, "kafka.ssl.keystore.location": "a.p12"}, "'a.p12': .* PEM files"),
    "Kerberos": (
        {**ORDERS, "kafka.sasl.jaas.config": 'Krb5LoginModule required username="secret";'},
        "kafka.sasl.jaas.config must be one of PlainLoginModule, ScramLoginModule",
    ),
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
    assert options.connection.security.kafka.username == "ann"
    assert (options.connection.security.grpc.protocol, options.connection.security.grpc.ca) == (
        "SSL",
        "/ca.pem",
    )
    assert "secret" not in repr(options)


def test_before_the_kind_of_query_is_known_only_unknown_options_are_refused() -> None:
    given = GivenOptions({**ORDERS, "startingOffsets": "latest", "endingOffsets": "latest"}, None)
    assert given[INCLUDE_HEADERS] is False
    assert given[STARTING_OFFSETS] == TO_THE_END
    with pytest.raises(OptionError, match="did you mean 'topic'"):
        GivenOptions({"topik": "x"}, None)


def test_options_of_other_queries_are_ignored_aloud(caplog: pytest.LogCaptureFixture) -> None:
    parse(maxOffsetsPerTrigger="5", kafka__fetch__min__bytes="7", groupIdPrefix="x")
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "option kafka.fetch.min.bytes has no effect on a batch query",
        "option maxOffsetsPerTrigger has no effect on a batch query",
        "option groupIdPrefix has no effect on a batch query",
    ]


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="endingOffsets is not for a streaming query: only for a"):
        parse_options({**ORDERS, "endingOffsets": "latest"}, Scope.STREAM)


def test_javas_names_of_security_settings_are_understood() -> None:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    security = parse_options(
        {
            **ORDERS,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{login} username="ann" password="a \\"b\\" c";',
            "kafka.ssl.truststore.location": "/ca.pem",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
    ).connection.security.kafka
    assert (security.username, security.password) == ("ann", 'a "b" c')
    assert (security.ca, security.identification) == ("/ca.pem", "none")
