"""Consumers of tests, which read as the members of a group and wait for no timer of librdkafka."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

FAST_CONSUMER: Final[Mapping[str, str | int]] = {
    "auto.offset.reset": "earliest",
    # librdkafka connects to a broker at most once in half of this time: 50 ms by default. Less
    # than 22 ms makes no difference.
    "reconnect.backoff.ms": 20,
}
"""The settings of ``quorate_consumer``, which others override."""

_COMMITTED_TIMEOUT_S: Final = 10.0


class GroupConsumers:
    """Makes consumers of one group, and closes them."""

    def __init__(self, bootstrap: str, group: str, cleanup: ExitStack) -> None:
        self._settings = {**FAST_CONSUMER, "bootstrap.servers": bootstrap, "group.id": group}
        self._cleanup = cleanup

    def __call__(self, *topics: str, config: Mapping[str, Any] | None = None) -> Consumer:
        """Return a consumer that has subscribed to the topics, with ``config`` of librdkafka."""
        settings = {**self._settings, **(config or {})}
        consumer = Consumer(settings)
        self._cleanup.callback(consumer.close)
        if settings["auto.offset.reset"] in _FROM_THE_BEGINNING:
            consumer.subscribe(list(topics), on_assign=_BeginningAssignment(settings))
        else:
            consumer.subscribe(list(topics))
        return consumer


_FROM_THE_BEGINNING: Final = frozenset({"earliest", "smallest", "beginning"})


class _BeginningAssignment:
    """Assigns partitions without a committed offset from the beginning.

    librdkafka would do the same, 100 ms after it has heard that there is no committed offset.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._is_incremental = settings.get("group.protocol") == "consumer" or (
            "cooperative" in str(settings.get("partition.assignment.strategy", ""))
        )

    def __call__(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        begun = consumer.committed(partitions, timeout=_COMMITTED_TIMEOUT_S)
        for partition in begun:
            if partition.offset < 0:
                partition.offset = OFFSET_BEGINNING
        if self._is_incremental:
            consumer.incremental_assign(begun)
        else:
            consumer.assign(begun)
