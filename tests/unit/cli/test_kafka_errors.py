"""What ``produce`` and ``consume`` say of librdkafka's errors."""

from typing import Any, ClassVar

import click
import pytest
from confluent_kafka import KafkaError, TopicPartition

from quorate.cli.kafka_errors import Troubles, explained
from quorate.cli.records.polling import PartitionEnds, _is_error
from quorate.cli.records.record_sender import Delivery


class ErrorMessage:
    """What stands for a record that could not be had."""

    def __init__(self, code: int) -> None:
        self._error = KafkaError(code)

    def error(self) -> KafkaError:
        return self._error

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0


def failed(code: int) -> Any:  # noqa: ANN401 - stands for a Message, which cannot be made
    return ErrorMessage(code)


def test_the_last_trouble_explains_that_time_is_up() -> None:
    troubles = Troubles()
    assert troubles.with_last("timed out") == "timed out"
    troubles(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    troubles(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert troubles.with_last("timed out") == "timed out (wrong password)"


def test_who_may_not_is_told_what_would_allow_it() -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert "--operation Write --topic orders" in explained(error, "Write", "orders")
    assert "acls" not in explained(KafkaError(KafkaError._MSG_TIMED_OUT), "Write", "orders")
    delivery = Delivery()
    delivery.on_delivery(error, failed(0))
    assert "--operation Write --topic orders" in delivery.first_error


def test_consuming_ends_where_reading_is_not_allowed() -> None:
    with pytest.raises(click.ClickException, match="--operation Read --topic orders"):
        _is_error(failed(KafkaError.TOPIC_AUTHORIZATION_FAILED), PartitionEnds(), in_group=False)


def test_no_rights_on_a_group_are_needed_to_consume(capsys: pytest.CaptureFixture[str]) -> None:
    ends = PartitionEnds()
    assert _is_error(failed(KafkaError.GROUP_AUTHORIZATION_FAILED), ends, in_group=False)
    assert capsys.readouterr().err == ""
    assert _is_error(failed(KafkaError._TRANSPORT), ends, in_group=False)
    assert capsys.readouterr().err.startswith("quorate: ")


def test_a_member_of_a_group_needs_rights_on_it() -> None:
    with pytest.raises(click.ClickException, match="quorate acls --add --group"):
        _is_error(failed(KafkaError.GROUP_AUTHORIZATION_FAILED), PartitionEnds(), in_group=True)


def test_the_ends_of_partitions_are_known_until_they_are_left() -> None:
    class Consumer:
        partitions: ClassVar = [TopicPartition("orders", 0)]

        def assignment(self) -> list[TopicPartition]:
            return self.partitions

    consumer: Any = Consumer()
    ends = PartitionEnds()
    assert not ends.are_all_of(consumer)
    assert _is_error(failed(KafkaError._PARTITION_EOF), ends, in_group=False)
    assert ends.are_all_of(consumer)
    Consumer.partitions.append(TopicPartition("orders", 1))
    assert not ends.are_all_of(consumer)
    Consumer.partitions.clear()
    assert not ends.are_all_of(consumer), "nothing is assigned yet"
