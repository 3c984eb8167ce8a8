"""A standing consumer group, whose members come and go while faults happen.

The members note what they own, read and commit, under one lock. So what a group promises can be
judged at any moment: a partition has one owner at a time, no record is left out, and what is
committed is neither lost nor read again.
"""

import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.waiting import wait_until

_MEMBERS: Final = 3
_LIFE_S: Final = (4.0, 20.0)
_POLL_S: Final = 0.2
_RECORDS_PER_POLL: Final = 500
_TIMEOUT_S: Final = 120.0

Place = tuple[str, int]
"""A partition: its topic and number."""


class GroupNotes:
    """What the members of one group own, have read and have committed.

    ``violations`` has a line for everything that must not happen.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.rebalances = 0
        self.refused_commits: Counter[str] = Counter()
        self.read_to: dict[Place, int] = {}
        """The offset after the last record of each partition that was read without a gap."""
        self.committed: dict[Place, int] = {}
        """The newest offset of each partition whose commit was answered."""
        self._owners: dict[Place, str] = {}
        self._lock = threading.Lock()

    def assigned(self, member: str, places: Sequence[Place]) -> None:
        with self._lock:
            self.rebalances += 1
            for place in places:
                owner = self._owners.get(place)
                if owner is not None:
                    self.violations.append(f"{place} is given to {member} while {owner} owns it")
                self._owners[place] = member

    def revoked(self, member: str, places: Sequence[Place]) -> None:
        with self._lock:
            for place in places:
                if self._owners.get(place) == member:
                    del self._owners[place]

    def read(self, member: str, place: Place, offset: int) -> None:
        with self._lock:
            if self._owners.get(place) != member:
                self.violations.append(f"{member} reads {place}, which it does not own")
            expected = self.read_to.get(place, 0)
            if offset > expected:
                self.violations.append(f"{member} reads {offset} of {place} next, not {expected}")
            committed = self.committed.get(place, 0)
            if offset < committed:
                self.violations.append(f"{offset} of {place} is read after {committed} committed")
            self.read_to[place] = max(expected, offset + 1)

    def commit_answered(self, place: Place, offset: int) -> None:
        with self._lock:
            self.committed[place] = max(self.committed.get(place, 0), offset)

    def commit_refused(self, reason: str) -> None:
        with self._lock:
            self.refused_commits[reason] += 1

    def judge_committed(self, found: Mapping[Place, int], answered: Mapping[Place, int]) -> None:
        """Compare what the coordinator says is committed with what was ``answered`` before."""
        with self._lock:
            for place, offset in answered.items():
                if found.get(place, -1) < offset:
                    self.violations.append(
                        f"{place}: {offset} was committed, and {found.get(place)} is found"
                    )


class StandingGroup:
    """Members of one group, each in a thread; one that leaves is followed by another."""

    def __init__(
        self, bootstrap: str, protocol: str, topics: Sequence[str], chance: random.Random
    ) -> None:
        """``protocol``: the ``group.protocol`` of the clients, "classic" or "consumer"."""
        self.notes = GroupNotes()
        self.group_id = f"standing-{protocol}"
        self._settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": self.group_id,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "socket.timeout.ms": 3_000,
            "log_level": 0,
        }
        if protocol == "classic":
            self._settings["partition.assignment.strategy"] = "cooperative-sticky"
        self._topics = list(topics)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._keep_a_member,
                args=(number, random.Random(chance.random())),
                name=f"{self.group_id}-{number}",
            )
            for number in range(_MEMBERS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def check(self, ends: Mapping[Place, int]) -> None:
        """Wait until the members have read up to ``ends``, and judge all that they noted.

        Raises:
            AssertionError: they do not come that far, or the group broke a promise.
        """
        wait_until(
            lambda: not self._behind(ends) or self.notes.violations,
            lambda: f"{self.group_id} to read {self._behind(ends)}",
            timeout_s=_TIMEOUT_S,
        )
        answered = dict(self.notes.committed)
        self.notes.judge_committed(self._found_committed(list(answered)), answered)
        found = self.notes.violations
        assert not found, f"{self.group_id} broke {len(found)} promises: {found[:5]}"

    def figures(self) -> str:
        notes = self.notes
        return (
            f"{self.group_id}: {sum(notes.read_to.values())} records read, {notes.rebalances} "
            f"assignments, refused commits {dict(notes.refused_commits)}"
        )

    def _behind(self, ends: Mapping[Place, int]) -> list[str]:
        read_to = self.notes.read_to
        return [
            f"{place} to {end}, not {read_to.get(place, 0)}"
            for place, end in ends.items()
            if read_to.get(place, 0) < end
        ]

    def _found_committed(self, places: Sequence[Place]) -> dict[Place, int]:
        consumer = Consumer(self._settings)
        try:
            asked = [TopicPartition(*place) for place in places]
            found = consumer.committed(asked, timeout=_TIMEOUT_S) if asked else []
            return {(one.topic, one.partition): one.offset for one in found}
        finally:
            consumer.close()

    def _keep_a_member(self, number: int, chance: random.Random) -> None:
        lives = 0
        while not self._stop.is_set():
            lives += 1
            self._live(f"member-{number}.{lives}", polls=int(chance.uniform(*_LIFE_S) / _POLL_S))

    def _live(self, member: str, polls: int) -> None:
        """Read and commit as one member for about so many polls, and leave."""
        consumer = Consumer({**self._settings, "client.id": member})
        revoked = partial(self._revoked, member)
        consumer.subscribe(
            self._topics,
            on_assign=lambda _, given: self.notes.assigned(member, _places(given)),
            on_revoke=revoked,
            on_lost=revoked,
        )
        try:
            for _ in range(polls):
                if self._stop.is_set():
                    break
                if self._read(consumer, member):
                    self._commit(consumer)
        finally:
            consumer.close()

    def _revoked(self, member: str, _: Consumer, taken: list[TopicPartition]) -> None:
        self.notes.revoked(member, _places(taken))

    def _read(self, consumer: Consumer, member: str) -> bool:
        """Note the records of one poll, and return whether there were any."""
        count = 0
        for message in consumer.consume(_RECORDS_PER_POLL, timeout=_POLL_S):
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if message.error() is not None or topic is None or partition is None or offset is None:
                continue  # The client tries again.
            self.notes.read(member, (topic, partition), offset)
            count += 1
        return count > 0

    def _commit(self, consumer: Consumer) -> None:
        try:
            answers = consumer.commit(asynchronous=False)
        except KafkaException as error:
            self.notes.commit_refused(error.args[0].name())
            return
        for answer in answers or []:
            if answer.error is None:
                self.notes.commit_answered((answer.topic, answer.partition), answer.offset)
            else:
                self.notes.commit_refused(answer.error.name())


def _places(partitions: Sequence[TopicPartition]) -> list[Place]:
    return [(each.topic, each.partition) for each in partitions]
