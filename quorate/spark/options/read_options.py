"""The options of the source: Spark's own Kafka source, format name changed.

Parsing is pure and complete before anything is opened: what comes out of `parse_options` either
can be planned or has been refused with a message that names the option and what it may be.
Keys are case-insensitive, as everywhere in Spark.
"""

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from quorate.client.security import InvalidOption, Securities, read_options
from quorate.spark.errors import OptionError
from quorate.spark.options.offset_bounds import (
    AtOffsets,
    OffsetBound,
    json_object,
    parse_bound,
    partitions_of,
)

CONNECTION_OPTIONS = ("kafka.bootstrap.servers", "bootstrap.servers")
SUBSCRIPTION_OPTIONS = ("subscribe", "subscribePattern", "assign")
READ_OPTIONS = (
    "startingOffsets",
    "endingOffsets",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
IGNORED_OPTIONS = (
    "groupIdPrefix",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
"""Valid in Spark's contract, but without effect on a batch query that joins no consumer group."""

KNOWN_OPTIONS = CONNECTION_OPTIONS + SUBSCRIPTION_OPTIONS + READ_OPTIONS + IGNORED_OPTIONS

REFUSED_CLIENT_SETTINGS: Mapping[str, str] = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "the source commits no offsets",
    "kafka.key.deserializer": "keys are binary: decode them with DataFrame operations",
    "kafka.value.deserializer": "values are binary: decode them with DataFrame operations",
    "kafka.interceptor.classes": "the source reads the log as it is",
}

_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[2]}'
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions: topics by name, topics by pattern, or partitions one by one."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A query's options, all checked."""

    bootstrap_servers: str
    subscription: Subscription
    starting: OffsetBound
    ending: OffsetBound
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    retries_max: int = 10
    retry_interval_ms: int = 100
    """The first pause between two tries; it doubles up to two seconds."""
    frame_timeout_ms: int = 120_000
    """How long one frame of a range may take before the leader is asked again."""
    security: Securities = Securities()  # noqa: RUF009 - frozen


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Check a query's options.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    values = _Values({key.lower(): value for key, value in options.items()})
    values.refuse_unknown()
    values.refuse_unusable_client_settings()
    parsed = ReadOptions(
        bootstrap_servers=_bootstrap_servers(values),
        subscription=_subscription(values),
        starting=parse_bound("starting", values.text),
        ending=parse_bound("ending", values.text),
        fail_on_data_loss=values.boolean("failOnDataLoss", default=True),
        include_headers=values.boolean("includeHeaders", default=False),
        min_partitions=values.whole_number("minPartitions", at_least=1),
        max_records_per_partition=values.whole_number("maxRecordsPerPartition", at_least=1),
        retries_max=values.whole_number_or("fetchOffset.numRetries", 10, at_least=0),
        retry_interval_ms=values.whole_number_or("fetchOffset.retryIntervalMs", 100, at_least=1),
        security=values.security(),
        frame_timeout_ms=values.whole_number_or("kafkaConsumer.pollTimeoutMs", 120_000, at_least=1),
    )
    _refuse_unequal_sides(parsed.starting, parsed.ending)
    return parsed


class _Values:
    """Options by their written name, whatever the case they were given in."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(f"option {name} is {value!r}: it must be true or false")
        return value.lower() == "true"

    def whole_number(self, name: str, *, at_least: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not value.strip().isdecimal() or int(value) < at_least:
            raise OptionError(
                f"option {name} is {value!r}: it must be a whole number, at least {at_least}"
            )
        return int(value)

    def whole_number_or(self, name: str, default: int, *, at_least: int) -> int:
        value = self.whole_number(name, at_least=at_least)
        return default if value is None else value

    def refuse_unknown(self) -> None:
        known = {name.lower(): name for name in KNOWN_OPTIONS}
        for key in self._given:
            if key not in known and not key.startswith("kafka."):
                nearest = difflib.get_close_matches(key, known, n=1, cutoff=0)[0]
                raise OptionError(f"unknown option {key!r}: did you mean {known[nearest]!r}?")
        for name in IGNORED_OPTIONS:
            if self.text(name) is not None:
                _logger.warning("option %s has no effect on a batch query", name)

    def security(self) -> Securities:
        """Of ``kafka.security.protocol``, ``kafka.ssl.…`` and ``kafka.sasl.…``."""
        given = {
            key.removeprefix("kafka."): value
            for key, value in self._given.items()
            if key.startswith(("kafka.security.", "kafka.ssl.", "kafka.sasl.", "kafka.grpc."))
        }
        try:
            return read_options(given)
        except InvalidOption as error:
            raise OptionError(f"among the kafka.… options: {error}") from None

    def refuse_unusable_client_settings(self) -> None:
        """Of what is meant for Kafka's client, refuse what would silently not be honoured."""
        for name, advice in REFUSED_CLIENT_SETTINGS.items():
            if self.text(name) is not None:
                raise OptionError(f"option {name} is not supported: {advice}")


def _bootstrap_servers(values: _Values) -> str:
    servers = values.text("kafka.bootstrap.servers") or values.text("bootstrap.servers")
    if not servers:
        raise OptionError("option kafka.bootstrap.servers is missing: give it as 'host:port,...'")
    return servers


def _subscription(values: _Values) -> Subscription:
    given = [name for name in SUBSCRIPTION_OPTIONS if values.text(name) is not None]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "none is given"
        raise OptionError(f"exactly one of {', '.join(SUBSCRIPTION_OPTIONS)} is needed: {found}")
    name = given[0]
    text = values.text(name) or ""
    if name == "assign":
        return Subscription(partitions=_assigned(text))
    if name == "subscribePattern":
        return Subscription(pattern=_pattern(text))
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise OptionError(f"option subscribe names no topic: {text!r}")
    return Subscription(topics=topics)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"option subscribePattern is no pattern ({error}): {text!r}") from None
    if not text:
        raise OptionError("option subscribePattern is empty")
    return text


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, partitions in json_object("assign", text, _ASSIGN_EXAMPLE).items():
        if not isinstance(partitions, list) or not all(
            isinstance(number, int) and not isinstance(number, bool) and number >= 0
            for number in partitions
        ):
            raise OptionError(
                f"option assign: {partitions!r} of {topic!r} is no list of partition numbers; "
                f"write it as {_ASSIGN_EXAMPLE}"
            )
        if partitions:
            assigned[topic] = tuple(sorted(set(partitions)))
    if not assigned:
        raise OptionError(f"option assign names no partition: {text!r}; as in {_ASSIGN_EXAMPLE}")
    return assigned


def _refuse_unequal_sides(starting: OffsetBound, ending: OffsetBound) -> None:
    """What can be said without asking the cluster: equal partitions, and start <= end."""
    start_partitions, end_partitions = partitions_of(starting), partitions_of(ending)
    if start_partitions is None or end_partitions is None:
        return
    if difference := sorted(start_partitions ^ end_partitions):
        raise OptionError(
            "starting and ending offsets must name the same partitions: only one side names "
            f"{', '.join(map(str, difference))}"
        )
    if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
        for partition, start in sorted(starting.offsets.items()):
            if 0 <= ending.offsets[partition] < start:
                raise OptionError(
                    f"endingOffsets {ending.offsets[partition]} of {partition} is before "
                    f"startingOffsets {start}"
                )
