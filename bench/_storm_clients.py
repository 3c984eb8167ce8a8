"""Clients that create or delete many topics, with several requests in flight (KIP-599).

A new client knows THROTTLING_QUOTA_EXCEEDED: it waits as long as it is told, and at least for its
back-off, and asks again for what was refused. It is Quorate's own, which retries by itself; that is
switched off here, so that each refusal is seen. An eager one is the same without a back-off. An old
client knows no such error: its requests are served and its connection is muted. It is an unmodified
librdkafka.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal

from quorate.client.admin import AsyncAdminClient
from quorate.client.calls.topic_calls import retry_wait_ms
from quorate.client.results import NewTopic, TopicResult

CLIENT_ID: Final = "storm"
"""The client id that the quota is set for."""

TIMEOUT_S: Final = 300.0

Client = Literal["new", "eager", "old"]
Change = Literal["create", "delete"]
WaitMs = Callable[[int, int], int]
"""A function that returns how long a client waits, from the time that it was told and the number
of its attempts."""


@dataclass(frozen=True)
class Storm:
    """The load of one run: a change of many topics by requests, several of them at once."""

    change: Change
    topics: Sequence[str]
    topics_per_request: int
    in_flight: int
    partitions: int
    replication_factor: int

    @property
    def mutations(self) -> int:
        """The number of partitions that are created or deleted."""
        return len(self.topics) * self.partitions

    @property
    def batches(self) -> list[Sequence[str]]:
        """The topics of each request."""
        size = self.topics_per_request
        return [self.topics[first : first + size] for first in range(0, len(self.topics), size)]


@dataclass
class Seen:
    """The figures of a run as the storming client has seen them."""

    elapsed_s: float = 0.0
    """From the first request until the last topic is answered."""
    requests: int = 0
    refused: int = 0
    """The number of times that a topic was refused for now."""
    throttle_times_ms: list[int] = field(default_factory=list)
    """The throttle times that the client was told. An old client is not told."""
    longest_s: float = 0.0
    """From when a batch was begun until all of it was done, refusals and waits included."""

    def figures(self) -> dict[str, float]:
        return {
            "storm s": self.elapsed_s,
            "requests": self.requests,
            "refused": self.refused,
            "told to wait max ms": max(self.throttle_times_ms, default=0),
            "longest batch s": self.longest_s,
        }


def storm(bootstrap: str, client: Client, plan: Storm) -> Seen:
    """Carry it out, until every topic was answered without an error.

    Raises:
        RuntimeError: a topic was refused for good.
    """
    seen = Seen()
    begun_s = time.perf_counter()
    if client == "old":
        _as_old_client(bootstrap, plan, seen)
    else:
        wait_ms = retry_wait_ms if client == "new" else _as_told
        asyncio.run(_as_new_client(bootstrap, plan, wait_ms, seen))
    seen.elapsed_s = time.perf_counter() - begun_s
    return seen


def _as_told(throttle_time_ms: int, _attempts: int) -> int:
    return throttle_time_ms


async def _as_new_client(bootstrap: str, plan: Storm, wait_ms: WaitMs, seen: Seen) -> None:
    async with AsyncAdminClient(
        bootstrap,
        client_id=CLIENT_ID,
        timeout_ms=int(TIMEOUT_S * 1000),
        retry_on_quota_violation=False,
    ) as admin:
        gate = asyncio.Semaphore(plan.in_flight)

        async def carry_out(names: Sequence[str]) -> None:
            async with gate:
                await _until_admitted(admin, plan, names, wait_ms, seen)

        await asyncio.gather(*map(carry_out, plan.batches))


async def _until_admitted(
    admin: AsyncAdminClient, plan: Storm, names: Sequence[str], wait_ms: WaitMs, seen: Seen
) -> None:
    begun_s, attempts = time.perf_counter(), 0
    while names:
        attempts += 1
        results = await _ask(admin, plan, names)
        seen.requests += 1
        refused = [one for one in results if one.is_over_quota]
        failed = [one for one in results if not one.ok and not one.is_over_quota]
        if failed:
            raise RuntimeError(f"{len(failed)} topics were refused, the first: {failed[0]}")
        names = [one.name for one in refused]
        if refused:
            seen.refused += len(refused)
            told_ms = refused[0].throttle_time_ms
            seen.throttle_times_ms.append(told_ms)
            await asyncio.sleep(wait_ms(told_ms, attempts) / 1000)
    seen.longest_s = max(seen.longest_s, time.perf_counter() - begun_s)


async def _ask(admin: AsyncAdminClient, plan: Storm, names: Sequence[str]) -> list[TopicResult]:
    if plan.change == "delete":
        return await admin.delete_topics(names)
    return await admin.create_topics(
        [
            NewTopic(
                name=name,
                num_partitions=plan.partitions,
                replication_factor=plan.replication_factor,
            )
            for name in names
        ]
    )


def _as_old_client(bootstrap: str, plan: Storm, seen: Seen) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic as OldNewTopic

    admin = AdminClient(
        {"bootstrap.servers": bootstrap, "client.id": CLIENT_ID, "socket.timeout.ms": 300_000}
    )

    def ask(names: Sequence[str]) -> "dict[str, Future[None]]":
        timeouts = {"operation_timeout": TIMEOUT_S, "request_timeout": TIMEOUT_S}
        if plan.change == "delete":
            answers: dict[str, Future[None]] = admin.delete_topics(list(names), **timeouts)
        else:
            new = [OldNewTopic(name, plan.partitions, plan.replication_factor) for name in names]
            answers = admin.create_topics(new, **timeouts)
        return answers

    def carry_out(names: Sequence[str]) -> float:
        begun_s = time.perf_counter()
        errors = [answer.exception() for answer in ask(names).values()]
        failed = [error for error in errors if error is not None]
        if failed:
            raise RuntimeError(f"{len(failed)} topics were refused, the first: {failed[0]}")
        return time.perf_counter() - begun_s

    with ThreadPoolExecutor(plan.in_flight) as pool:
        took_s = list(pool.map(carry_out, plan.batches))
    seen.requests, seen.longest_s = len(took_s), max(took_s)
