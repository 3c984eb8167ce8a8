"""A standing consumer group, whose members come and go while faults happen.

The members note what they own, read and commit, under one lock. So what a group promises can be
judged at any moment: a partition has one owner at a time, no record is left out, and what is
committed is neither lost nor read again.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.waiting import wait_until

_MEMBERS: Final = 3
_LIFE_S: Final = (4.0, 20.0)
_POLL_S: Final = 0.2
_RECORDS_PER_POLL: Final = 500
SESSION_TIMEOUT_MS: Final = 15_000
"""The time after which a coordinator gives up a member that it does not hear."""
_RECONNECT_MAX_MS: Final = 1_000
"""The longest pause of a client between two attempts to connect. By default it would be nearly a
session: a member that a new coordinator gives up before it connects still believes in what it
owns."""
_TIMEOUT_S: Final = 60.0 + 2 * _MEMBERS * SESSION_TIMEOUT_MS / 1000
"""In the worst case every member has gone without being heard, one in each rebalance, and has left
behind an id that it never joined with, for which the coordinator waits as long."""

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
                    self.violations.append(
                        f"{_time()} {place} is given to {member} while {owner} owns it"
                    )
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
            "reconnect.backoff.max.ms": _RECONNECT_MAX_MS,
            "log_level": 0,
        }
        if protocol == "classic":
            self._settings["partition.assignment.strategy"] = "cooperative-sticky"
            self._settings["session.timeout.ms"] = SESSION_TIMEOUT_MS
        self._topics = list(topics)
        self._doing: dict[int, tuple[str, float]] = {}
        """What each thread does, and since when."""
        self._stop = threading.Event()
        self._is_awaited = threading.Event()
        """Set while somebody waits for what the members read. Nobody leaves then: on a busy machine
        a classic group might not come to the end of a rebalance before the next one begins."""
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
        self._is_awaited.set()
        try:
            wait_until(
                lambda: not self._behind(ends) or self.notes.violations,
                lambda: f"{self.group_id} to read {self._behind(ends)}; {self._described()}",
                timeout_s=_TIMEOUT_S,
            )
        finally:
            self._is_awaited.clear()
        answered = dict(self.notes.committed)
        self.notes.judge_committed(self._found_committed(list(answered)), answered)
        found = self.notes.violations
        assert not found, (
            f"{self.group_id} broke {len(found)} promises: {found[:5]}; {self._described()}"
        )

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

    def _described(self) -> str:
        """Return what the coordinator says of the group, and what its members do."""
        admin = AdminClient({"bootstrap.servers": self._settings["bootstrap.servers"]})
        described = admin.describe_consumer_groups([self.group_id], request_timeout=10)
        try:
            found = described[self.group_id].result()
        except KafkaException as error:
            told = str(error)
        else:
            members = [
                f"{one.client_id} with {_places(one.assignment.topic_partitions)}"
                for one in found.members
            ]
            told = f"{found.state.name}, {members}"
        now_s = time.monotonic()
        doing = [f"{what} for {now_s - since_s:.0f} s" for what, since_s in self._doing.values()]
        return f"the coordinator: {told}; the members: {doing}"

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
            polls = int(chance.uniform(*_LIFE_S) / _POLL_S)
            self._live(f"member-{number}.{lives}", polls, partial(self._does, number))

    def _does(self, number: int, what: str) -> None:
        self._doing[number] = what, time.monotonic()

    def _live(self, member: str, polls: int, does: Callable[[str], None]) -> None:
        """Read and commit as one member for about so many polls, or longer, and leave."""
        does(f"{member} joins")
        consumer = Consumer({**self._settings, "client.id": member})
        revoked = partial(self._revoked, member)
        consumer.subscribe(
            self._topics,
            on_assign=lambda _, given: self.notes.assigned(member, _places(given)),
            on_revoke=revoked,
            on_lost=revoked,
        )
        try:
            for poll in count():
                if self._stop.is_set() or (poll >= polls and not self._is_awaited.is_set()):
                    break
                does(f"{member} reads, poll {poll} of {polls}")
                if self._read(consumer, member):
                    does(f"{member} commits")
                    self._commit(consumer)
        finally:
            does(f"{member} leaves")
            consumer.close()

    def _revoked(self, member: str, _: Consumer, taken: list[TopicPartition]) -> None:
        self.notes.revoked(member, _places(taken))

    def _read(self, consumer: Consumer, member: str) -> bool:
        """Note the records of one poll, and return whether there were any."""
        records = 0
        for message in consumer.consume(_RECORDS_PER_POLL, timeout=_POLL_S):
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if message.error() is not None or topic is None or partition is None or offset is None:
                continue  # The client tries again.
            self.notes.read(member, (topic, partition), offset)
            records += 1
        return records > 0

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


def _time() -> str:
    """Return the time as the logs of brokers have it."""
    return time.strftime("%H:%M:%S")


def _places(partitions: Sequence[TopicPartition]) -> list[Place]:
    return [(each.topic, each.partition) for each in partitions]
