"""Changes through the controller: asked of itself, and of a broker that has to pass them on.

Every client changes one thing after the other: a key of a topic of its own, by
IncrementalAlterConfigs, or the access control entries, by CreateAcls. "kafka, forwarded": over the
Kafka wire, asked of a broker that is not the controller; "kafka, direct": of the controller; "grpc,
direct": the admin client's way. "acts": from the request until every broker has the changed value
in force, each asked over and over. Goals: forwarded p50 at most twice the direct one; 500 changes/s
with 32 clients; a change acts everywhere within 100 ms p99.
"""

import asyncio
import functools
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

import uvloop

from bench._admin_wire import AdminWire
from bench._nodes import cpu_by_pid, cpu_since
from bench._support import Bench, percentile
from bench.peers.closed_loop import await_writes
from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.client.admin import AsyncAdminClient
from quorate.client.results import ConfigChange, NewTopic
from quorate.testing import RunningCluster, running_cluster

BROKERS: Final = 3
VOTERS: Final = 3
CLIENTS: Final = (1, 32)
WIRE_WAYS: Final = ("kafka, direct", "kafka, forwarded")
KEY: Final = "max.message.bytes"
AUTHORIZER: Final = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
}
"""The settings of the brokers. Without an authorizer there is no access control to be changed."""

Change = Callable[[int], Awaitable[None]]
"""Carries out the change of that number."""

_numbers = itertools.count(100_000)
"""No value is set twice, and no entry added twice: that would change nothing."""


class Asked:
    """One cluster, asked in three ways."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self._controller = cluster.controller_id()
        self._other = next(one for one in cluster.broker_ids if one != self._controller)

    def prepare(self) -> None:
        """A topic for each client."""
        with self._cluster.admin() as admin:
            for result in admin.create_topics(
                [NewTopic(name=_topic(n)) for n in range(CLIENTS[-1])]
            ):
                result.raise_for_error()

    def configs(self, way: str, clients: int, seconds: float) -> dict[str, float]:
        """Figures of changed topic configurations."""
        if way == "grpc, direct":
            return self._measured(self._over_grpc, clients, seconds)
        return self._measured(
            lambda stack: self._wires(stack, way, clients, _set), clients, seconds
        )

    def acls(self, way: str, clients: int, seconds: float) -> dict[str, float]:
        """Figures of added access control entries."""
        return self._measured(
            lambda stack: self._wires(stack, way, clients, _allow), clients, seconds
        )

    def acting(self, way: str, changes: int) -> dict[str, float]:
        """Measure the time until a changed configuration is in force everywhere."""
        delays_ms = uvloop.run(self._acting(way, changes))
        return {
            "p50 ms": percentile(delays_ms, 0.5),
            "p99 ms": percentile(delays_ms, 0.99),
        }

    def _measured(
        self,
        open_clients: "Callable[[AsyncExitStack], Awaitable[Change]]",
        clients: int,
        seconds: float,
    ) -> dict[str, float]:
        async def load() -> list[float]:
            async with AsyncExitStack() as stack:
                change = await open_clients(stack)
                await await_writes(change, min(1.0, seconds), clients)
                before = cpu_by_pid(self._cluster)
                latencies_ms = await await_writes(change, seconds, clients)
                cpu.update(cpu_since(self._cluster, before))
                return latencies_ms

        cpu: dict[str, float] = {}
        latencies_ms = uvloop.run(load())
        return {
            "changes/s": len(latencies_ms) / seconds,
            "p50 ms": percentile(latencies_ms, 0.5),
            "p99 ms": percentile(latencies_ms, 0.99),
            "brokers CPU ms/change": 1000 * cpu["brokers CPU s"] / len(latencies_ms),
            "voters CPU ms/change": 1000 * cpu["voters CPU s"] / len(latencies_ms),
        }

    async def _wires(
        self,
        stack: AsyncExitStack,
        way: str,
        clients: int,
        change: "Callable[[AdminWire, str, int], Awaitable[None]]",
    ) -> Change:
        address = self._cluster.broker_address(
            self._controller if way == "kafka, direct" else self._other
        )
        free = [(await _connected(stack, address), _topic(number)) for number in range(clients)]

        async def carry_out(_: int) -> None:
            wire, topic = free.pop()
            await change(wire, topic, next(_numbers))
            free.append((wire, topic))

        return carry_out

    async def _over_grpc(self, stack: AsyncExitStack) -> Change:
        admin = AsyncAdminClient(self._cluster.bootstrap)
        stack.push_async_callback(admin.close)

        async def carry_out(number: int) -> None:
            topic = _topic(number % CLIENTS[-1])
            values = {KEY: str(next(_numbers))}
            change = ConfigChange(entity_type="topic", entity_name=topic, values=values)
            (result,) = await admin.incremental_alter_configs([change])
            result.raise_for_error()

        return carry_out

    async def _acting(self, way: str, changes: int) -> list[float]:
        async with AsyncExitStack() as stack:
            asked = self._controller if way == "kafka, direct" else self._other
            wire = await _connected(stack, self._cluster.broker_address(asked))
            watchers = [
                await _connected(stack, self._cluster.broker_address(broker))
                for broker in self._cluster.broker_ids
            ]
            return [await _until_acting(wire, watchers) for _ in range(changes)]


async def _until_acting(wire: AdminWire, watchers: Sequence[AdminWire]) -> float:
    """Change a topic's configuration; ms until the last of ``watchers`` tells of it."""
    value = str(next(_numbers))

    async def see(watcher: AdminWire) -> float:
        while await watcher.topic_config(_topic(0), KEY) != value:
            await asyncio.sleep(0)
        return time.perf_counter()

    begun = time.perf_counter()
    seen = [asyncio.create_task(see(watcher)) for watcher in watchers]
    await wire.set_topic_config(_topic(0), KEY, value)
    return 1000 * (max(await asyncio.gather(*seen)) - begun)


async def _connected(stack: AsyncExitStack, address: str) -> AdminWire:
    wire = await AdminWire.connect(address)
    stack.callback(wire.close)
    return wire


async def _set(wire: AdminWire, topic: str, number: int) -> None:
    await wire.set_topic_config(topic, KEY, str(number))


async def _allow(wire: AdminWire, topic: str, number: int) -> None:
    await wire.allow_read(topic, f"user-{number}")


def _topic(number: int) -> str:
    return f"topic-{number:02}"


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Admin changes", "changes through the controller, forwarded and direct", arguments
    )
    seconds = bench.pick(full=5.0, quick=1.0)
    changes = bench.pick(full=300, quick=50)
    with running_cluster(brokers=BROKERS, voters=VOTERS, config=AUTHORIZER) as cluster:
        asked = Asked(cluster)
        asked.prepare()
        for measure, change, ways in (
            (asked.configs, "IncrementalAlterConfigs", ("grpc, direct", *WIRE_WAYS)),
            (asked.acls, "CreateAcls", WIRE_WAYS),
        ):
            for clients, way in itertools.product(CLIENTS, ways):
                figures = bench.repeat(functools.partial(measure, way, clients, seconds))
                bench.row({"change": change, "way": way, "clients": clients}, figures)
        for way in WIRE_WAYS:
            figures = bench.repeat(functools.partial(asked.acting, way, changes))
            bench.row({"change": "acts on all brokers", "way": way, "clients": 1}, figures)
    bench.finish()


if __name__ == "__main__":
    main()
