"""Reads and resets the committed offsets of consumer groups through confluent-kafka."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import click

from quorate.cli.groups.moving_coordinators import answer_of
from quorate.cli.kafka_errors import Troubles

K = TypeVar("K")
T = TypeVar("T")
Description = Any
"""The type ``ConsumerGroupDescription`` of confluent-kafka, which does not export it."""
Partition = tuple[str, int]

_NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """One partition of a group.

    ``committed`` is None if the group has committed nothing. ``end`` is the offset after the last
    record.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    member_id: str = ""
    client_id: str = ""
    host: str = ""

    @property
    def lag(self) -> int | None:
        """Return the number of records that are still to be read, or None if it is not known."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The offset of a partition before and after a reset."""

    topic: str
    partition: int
    before: int | None
    after: int


class Groups:
    """The consumer groups of a cluster."""

    def __init__(self, config: Mapping[str, object], timeout_ms: int) -> None:
        from confluent_kafka.admin import AdminClient as KafkaAdmin

        self._troubles = Troubles()
        self._timeout_s = timeout_ms / 1000
        settings: dict[str, Any] = {
            **config,
            "client.id": "quorate-groups",
            "log_level": 0,
            "error_cb": self._troubles,
        }
        self._admin = KafkaAdmin(settings)

    def all(self) -> list[tuple[str, str]]:
        """Return the name and the state of each group."""
        listed = self._result(
            lambda: self._admin.list_consumer_groups(request_timeout=self._timeout_s), "list groups"
        )
        for error in listed.errors:
            raise click.ClickException(f"list groups: {self._troubles.with_last(str(error))}")
        return sorted((each.group_id, each.state.name.lower()) for each in listed.valid)

    def describe(self, group_id: str) -> Description:
        """Describe one group.

        Raises:
            click.ClickException: there is no such group, or no broker answers.
        """
        described: Description = self._result(
            lambda: self._admin.describe_consumer_groups(
                [group_id], request_timeout=self._timeout_s
            )[group_id],
            f"describe group {group_id!r}",
        )
        if described.state.name == "DEAD":
            raise click.ClickException(
                f"there is no group {group_id!r}; `quorate groups list` shows those there are, and "
                "`quorate share-groups list` the share groups"
            )
        return described

    def committed(self, group_id: str) -> dict[Partition, int]:
        """Return the offsets that the group has committed, by partition."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        found = self._result(
            lambda: self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group_id)], request_timeout=self._timeout_s
            )[group_id],
            f"offsets of group {group_id!r}",
        )
        return {
            (tp.topic, tp.partition): tp.offset
            for tp in found.topic_partitions or ()
            if tp.offset >= 0
        }

    def committed_by_each(self, group_ids: Sequence[str]) -> dict[str, dict[Partition, int]]:
        """Return the committed offsets of each group.

        Groups whose offsets cannot be read are left out: groups come and go, and so do their
        coordinators.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions

        # librdkafka takes one group per request. All requests are sent before the first answer is
        # awaited.
        asked = {
            group_id: self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group_id)], request_timeout=self._timeout_s
            )[group_id]
            for group_id in group_ids
        }
        return {
            group_id: {
                (tp.topic, tp.partition): tp.offset
                for tp in found.topic_partitions or ()
                if tp.offset >= 0
            }
            for group_id, found in self._answered(asked).items()
        }

    def known_ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the same as ``latest``, without the partitions whose end cannot be read.

        Topics are deleted and leaders move while the command runs.
        """
        return {
            one: found.offset
            for one, found in self._answered(self._ask_offsets(partitions, "latest")).items()
        }

    def _answered(self, asked: "Mapping[K, Future[T]]") -> dict[K, T]:
        from confluent_kafka import KafkaException

        found = {}
        for key, future in asked.items():
            with contextlib.suppress(KafkaException, TimeoutError):
                found[key] = future.result(self._timeout_s + 1)
        return found

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the first offset of each partition's log."""
        return self._offsets(partitions, "earliest")

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the offset after the last committed record of each partition."""
        return self._offsets(partitions, "latest")

    def since(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """Return the offset of the first record at or after that time; -1 if there is no such
        record."""
        return self._offsets(partitions, "for_timestamp", timestamp_ms)

    def _offsets(
        self, partitions: Iterable[Partition], kind: str, *of: int
    ) -> dict[Partition, int]:
        return {
            tp: self._result(partial(_itself, future), f"offsets of {tp[0]}").offset
            for tp, future in self._ask_offsets(partitions, kind, *of).items()
        }

    def _ask_offsets(
        self, partitions: Iterable[Partition], kind: str, *of: int
    ) -> "dict[Partition, Future[Any]]":
        from confluent_kafka import TopicPartition
        from confluent_kafka import admin as kafka_admin

        spec: Any = getattr(vars(kafka_admin)["OffsetSpec"], kind)(*of)
        asked = {TopicPartition(topic, number): spec for topic, number in partitions}
        if not asked:
            return {}
        futures = self._admin.list_offsets(asked, request_timeout=self._timeout_s)
        return {(tp.topic, tp.partition): future for tp, future in futures.items()}

    def partitions_of(self, topic: str) -> list[Partition]:
        """Return all partitions of a topic.

        Raises:
            click.ClickException: there is no such topic.
        """
        found = self._admin.list_topics(topic, timeout=self._timeout_s).topics[topic]
        if found.error is not None:
            raise click.ClickException(f"topic {topic!r}: {found.error.str()}")
        return [(topic, number) for number in sorted(found.partitions)]

    def commit(self, group_id: str, offsets: Mapping[Partition, int]) -> None:
        """Set the committed offsets of a group without members."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        tps = [TopicPartition(topic, number, at) for (topic, number), at in offsets.items()]
        done = self._result(
            lambda: self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group_id, tps)], request_timeout=self._timeout_s
            )[group_id],
            f"reset group {group_id!r}",
        )
        refused = [tp for tp in done.topic_partitions or () if tp.error is not None]
        if refused:
            why = "; ".join(f"{tp.topic}-{tp.partition}: {tp.error.str()}" for tp in refused)
            advice = _advice(refused[0].error.name())
            raise click.ClickException(f"group {group_id!r} was not reset: {why}{advice}")

    def delete(self, group_id: str) -> None:
        """Delete a group.

        Raises:
            click.ClickException: the group has members, or does not exist.
        """
        self._result(
            lambda: self._admin.delete_consumer_groups([group_id], request_timeout=self._timeout_s)[
                group_id
            ],
            f"delete group {group_id!r}",
        )

    def _result(self, ask: "Callable[[], Future[T]]", doing: str) -> T:
        from confluent_kafka import KafkaException

        try:
            return answer_of(ask, self._timeout_s)
        except KafkaException as error:
            why = self._troubles.with_last(error.args[0].str())
            raise click.ClickException(f"{doing}: {why}{_advice(error.args[0].name())}") from error
        except TimeoutError as error:
            why = self._troubles.with_last(f"no answer within {self._timeout_s:g} s")
            raise click.ClickException(f"{doing}: {why}") from error


def _itself(future: "Future[T]") -> "Future[T]":
    return future


def _advice(name: str) -> str:
    return {
        "NON_EMPTY_GROUP": ": stop its consumers first",
        "UNKNOWN_MEMBER_ID": ": it has members; stop its consumers first",
        "GROUP_ID_NOT_FOUND": ": `quorate groups list` shows those there are",
        "GROUP_AUTHORIZATION_FAILED": ": `quorate acls --add --group …` lets you",
    }.get(name, "")


def group_partitions(
    described: Description,
    committed: Mapping[Partition, int],
    ends: Mapping[Partition, int],
) -> list[GroupPartition]:
    """Return all partitions that are committed or assigned, sorted by topic and partition."""
    owners = {
        (tp.topic, tp.partition): member
        for member in described.members
        for tp in member.assignment.topic_partitions
    }
    found = []
    for topic, number in sorted({*committed, *owners}):
        owner = owners.get((topic, number))
        end = ends.get((topic, number), _NO_OFFSET)
        found.append(
            GroupPartition(
                topic=topic,
                partition=number,
                committed=committed.get((topic, number)),
                end=None if end < 0 else end,
                member_id="" if owner is None else owner.member_id,
                client_id="" if owner is None else owner.client_id,
                host="" if owner is None else owner.host,
            )
        )
    return found


def moves(
    wanted: Mapping[Partition, int],
    committed: Mapping[Partition, int],
    earliest: Mapping[Partition, int],
    latest: Mapping[Partition, int],
) -> list[Move]:
    """Return the new position of each partition: the wanted offset, limited to the range of its
    log."""
    return [
        Move(
            topic=tp[0],
            partition=tp[1],
            before=committed.get(tp),
            after=min(max(offset, earliest[tp]), latest[tp]),
        )
        for tp, offset in wanted.items()
    ]
