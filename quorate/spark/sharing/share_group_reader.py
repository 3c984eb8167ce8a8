"""The reader of a streaming query whose source is a share group (KIP-932).

The driver takes records with a share consumer, and sends them to the tasks. It accepts the records
of a batch once the batch has succeeded: Spark says so by `commit`, and by asking for what comes
next. A batch is known by its number. If the query is started again, records of a batch that was
planned and did not succeed are not there any more: the batch is empty then, and its records come
again in a later one, as their locks end. So each record is delivered at least once.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from quorate.client.librdkafka_options import librdkafka_settings
from quorate.spark.errors import CheckpointError, QuorateSourceError
from quorate.spark.sharing.share_options import ShareOptions

if TYPE_CHECKING:
    from confluent_kafka import Message, ShareConsumer

_log: Final = logging.getLogger(__name__)

_FIRST_POLL_S: Final = 15.0
"""How long the first records are waited for: a new member gets its partitions after a while."""
_POLL_S: Final = 0.5
_LAST_POLL_S: Final = 5.0
"""How long a query that is to end waits for another record."""
_COMMIT_S: Final = 20.0

Row = tuple[Any, ...]


class ShareRows(InputPartition):
    """The rows of one task."""

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__(None)
        self.rows = rows


class ShareGroupReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Takes records on the driver, and accepts them when their batch has succeeded."""

    def __init__(self, options: ShareOptions, schema: StructType) -> None:
        self._options = options
        self._columns = schema.names
        self._poll_s = _POLL_S
        self._consumer: ShareConsumer | None = None
        self._taken: dict[int, list[Message]] = {}
        """The records that are not accepted yet, by the number of their batch: one at most."""

    def initialOffset(self) -> dict[str, Any]:
        """Return the number before that of the first batch."""
        return self._offset(0)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return no limit: the share consumer has one of its own."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query when no record has come for a while."""
        self._poll_s = _LAST_POLL_S

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Take the records of the next batch, and return its number; ``start`` if none come.

        Raises:
            CheckpointError: the checkpoint is of another source, or of another group.
            QuorateSourceError: the cluster refuses the member.
        """
        number = self._number(start)
        self._accept(number)
        if not self._taken:
            taken = self._poll()
            if not taken:
                return start
            self._taken[number + 1] = taken
        return self._offset(max(self._taken))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the rows of a batch, divided among tasks."""
        first, last = self._number(start) + 1, self._number(end)
        rows = [
            tuple(_COLUMNS[name](message) for name in self._columns)
            for number in range(first, last + 1)
            for message in self._taken.get(number, ())
        ]
        step = max(1, -(-len(rows) // self._options.partitions))
        return [ShareRows(rows[at : at + step]) for at in range(0, len(rows), step)]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Yield the rows of one task."""
        assert isinstance(partition, ShareRows)
        yield from partition.rows

    def commit(self, end: dict[str, Any]) -> None:
        """Accept the records of a batch that has succeeded."""
        self._accept(self._number(end))

    def stop(self) -> None:
        """Leave the group: what is not accepted is available to others."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._taken.clear()

    # -- the share consumer ----------------------------------------------------------------------

    def _poll(self) -> "list[Message]":
        from confluent_kafka import KafkaException

        timeout_s = _FIRST_POLL_S if self._consumer is None else self._poll_s
        consumer = self._consumer = self._consumer or self._opened()
        try:
            messages = list(consumer.poll(timeout=timeout_s) or ())
        except KafkaException as error:
            raise QuorateSourceError(
                f"share group {self._options.group_id!r}: {error.args[0].str()}"
            ) from error
        for message in messages:
            if (trouble := message.error()) is not None:
                _log.warning("share group %s: %s", self._options.group_id, trouble.str())
        return [message for message in messages if message.error() is None]

    def _opened(self) -> "ShareConsumer":
        from confluent_kafka import ShareConsumer

        options = self._options
        consumer = ShareConsumer(
            {
                "bootstrap.servers": options.connection.bootstrap_servers,
                **librdkafka_settings(options.connection.security.kafka),
                "group.id": options.group_id,
                "client.id": "quorate-spark",
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": options.records_max,
                "log_level": 0,
            }
        )
        consumer.subscribe(list(options.topics))
        return consumer

    def _accept(self, number: int) -> None:
        """Accept the records of all batches up to this one. What is refused comes again."""
        from confluent_kafka import KafkaException

        for done in sorted(one for one in self._taken if one <= number):
            messages = self._taken.pop(done)
            assert self._consumer is not None
            try:
                for message in messages:
                    self._consumer.acknowledge(message)
                outcomes = self._consumer.commit_sync(timeout=_COMMIT_S) or {}
            except KafkaException as error:
                _log.warning("%d records come again: %s", len(messages), error.args[0].str())
                continue
            for tp, refusal in outcomes.items():
                if refusal is not None:
                    _log.warning("records of %s-%d come again: %s", tp.topic, tp.partition, refusal)

    # -- offsets ---------------------------------------------------------------------------------

    def _offset(self, number: int) -> dict[str, Any]:
        return {"shareGroup": self._options.group_id, "batch": number}

    def _number(self, offset: dict[str, Any]) -> int:
        group_id, number = offset.get("shareGroup"), offset.get("batch")
        if group_id != self._options.group_id or not isinstance(number, int):
            raise CheckpointError(
                f"the checkpoint has {offset}, which is not of share group "
                f"{self._options.group_id!r}: give the query another checkpointLocation"
            )
        return number


def _timestamp(message: "Message") -> datetime:
    return datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)


def _timestamp_type(message: "Message") -> int:
    """Return the type by Spark's numbers: 0 of creation, 1 of appending, -1 for none."""
    return message.timestamp()[0] - 1


def _headers(message: "Message") -> list[Any]:
    return list(message.headers() or ())


_COLUMNS: Final[dict[str, Callable[["Message"], Any]]] = {
    "key": lambda message: message.key(),
    "value": lambda message: message.value(),
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
}
"""How a column is made of a message."""
