"""What Spark puts among the options by itself: paths, and the properties of tables."""

import pytest

from quorate.spark.errors import OptionError
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.read_options import parse_read_options
from quorate.spark.options.spark_properties import own_options, table_options, with_table_options
from quorate.spark.options.topic_subscription import Subscription
from quorate.spark.schema import source_schema
from quorate.spark.writing.write_options import parse_write_options

SERVERS = {"kafka.bootstrap.servers": "b:9092"}
SCHEMA = source_schema(include_headers=False)
TABLE = {
    "provider": "quorate",
    "owner": "root",
    "comment": "orders of the day",
    "property": "of TBLPROPERTIES",
    "kafka.bootstrap.servers": "b:9092",
    "option.kafka.bootstrap.servers": "b:9092",
    "Subscribe": "orders",
    "option.Subscribe": "orders",
}
"""What pyspark 4.3 hands over for CREATE TABLE."""


def test_the_path_of_load_is_a_topic() -> None:
    options = parse_read_options({**SERVERS, "path": "orders"}, Scope.BATCH)
    assert options.subscription == Subscription(topics=("orders",))


def test_several_paths_are_topics() -> None:
    options = parse_read_options({**SERVERS, "paths": '["orders","payments"]'}, Scope.STREAM)
    assert options.subscription == Subscription(topics=("orders", "payments"))


def test_the_path_of_save_is_the_topic() -> None:
    assert parse_write_options({**SERVERS, "path": "orders"}).topic == "orders"


@pytest.mark.parametrize(
    ("options", "scope", "message"),
    [
        ({"path": "a", "subscribe": "b"}, Scope.BATCH, "by the path 'a' and by option subscribe"),
        ({"path": "a", "topic": "b"}, Scope.WRITE, "by the path 'a' and by option topic"),
        ({"path": "a"}, Scope.METADATA, "without a path"),
        ({**TABLE, "location": "file:/x", "path": "file:/x"}, None, "no LOCATION: 'file:/x'"),
    ],
)
def test_refused_paths(options: dict[str, str], scope: Scope | None, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        own_options(options, scope)


def test_a_path_beside_a_pattern_is_two_subscriptions() -> None:
    with pytest.raises(OptionError, match="subscribe and subscribePattern are given"):
        parse_read_options({**SERVERS, "path": "a", "subscribePattern": "b"}, Scope.BATCH)


def test_only_the_options_of_a_table_are_options() -> None:
    assert own_options(TABLE, None) == {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders"}


def test_a_table_keeps_its_options_with_its_columns() -> None:
    stored = with_table_options(SCHEMA, TABLE)
    assert stored.simpleString() == SCHEMA.simpleString()
    assert table_options(stored, {"startingOffsets": "latest-1", "SUBSCRIBE": "other"}) == {
        "kafka.bootstrap.servers": "b:9092",
        "startingoffsets": "latest-1",
        "subscribe": "other",
    }


def test_columns_of_a_query_that_is_no_table_keep_nothing() -> None:
    assert with_table_options(SCHEMA, SERVERS) == SCHEMA
    assert table_options(SCHEMA, SERVERS) == SERVERS


def test_a_table_keeps_no_secret() -> None:
    secret = {"kafka.sasl.password": "x", "option.kafka.sasl.password": "x"}
    with pytest.raises(OptionError, match=r"sasl\.password is a secret, and a table keeps none"):
        with_table_options(SCHEMA, {**TABLE, **secret})
