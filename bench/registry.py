"""Requests to the schema registry: how many a second, how fast, and what they cost the brokers.

Some connections of one client process send requests one after the other. "leader" is the broker
that leads the registry's topic, and "other" one that passes requests on to it. Each subject has
one schema of ten fields. "CPU us" is the CPU of all brokers for one request, which says more than
the rate on a machine that client and brokers share.

Karapace, the other registry in Python, is not on PyPI, so it does not stand beside it.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import aiohttp

from bench._support import Bench, percentile
from bench.peers.processes import cpu_seconds
from quorate.testing import RunningCluster, running_cluster

CONNECTIONS: Final = 8
BROKERS: Final = 2
SUBJECTS: Final = 200
TYPE: Final = {"Content-Type": "application/vnd.schemaregistry.v1+json"}

Request = tuple[str, str, Any]
"""Method, path and body."""


def schema(number: int, *, more: bool = False) -> dict[str, str]:
    """Return the body of a request with a schema of its own."""
    fields: list[dict[str, Any]] = [
        {"name": f"field_{one}_of_{number}", "type": ["null", "string"], "default": None}
        for one in range(10)
    ]
    if more:
        fields.append({"name": "more", "type": "long", "default": 0})
    return {"schema": json.dumps({"type": "record", "name": "Order", "fields": fields})}


def register_new(number: int) -> Request:
    return "POST", f"/subjects/new-{number}-value/versions", schema(number + SUBJECTS)


def register_known(number: int) -> Request:
    return "POST", f"/subjects/t{number % SUBJECTS}-value/versions", schema(number % SUBJECTS)


def by_id(number: int) -> Request:
    return "GET", f"/schemas/ids/{1 + number % SUBJECTS}", None


def latest(number: int) -> Request:
    return "GET", f"/subjects/t{number % SUBJECTS}-value/versions/latest", None


def compatibility(number: int) -> Request:
    path = f"/compatibility/subjects/t{number % SUBJECTS}-value/versions/latest"
    return "POST", path, schema(number % SUBJECTS, more=True)


CASES: Final[dict[str, Callable[[int], Request]]] = {
    "get by id": by_id,
    "latest of a subject": latest,
    "register what is known": register_known,
    "check compatibility": compatibility,
    "register": register_new,
}


async def load(url: str, made: Callable[[int], Request], numbers: range) -> list[float]:
    """Send requests over some connections; return how long each took, in seconds."""
    waiting = iter(numbers)
    took: list[float] = []

    async def send(session: aiohttp.ClientSession) -> None:
        for number in waiting:
            method, path, body = made(number)
            began = time.perf_counter()
            async with session.request(method, url + path, json=body, headers=TYPE) as answer:
                await answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"{method} {path}: {answer.status}")
            took.append(time.perf_counter() - began)

    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(send(session) for _ in range(CONNECTIONS)))
    return took


class Registry:
    """The registry of a cluster, with schemas in it."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self._next = 0
        asyncio.run(load(cluster.registry_url(1), register_known, range(1)))
        with cluster.admin() as admin:
            (topic,) = admin.describe_topics(["_schemas"])
        self.leader = int(topic.partitions[0].leader)
        asyncio.run(load(self.url("leader"), register_known, range(SUBJECTS)))

    def url(self, asked: str) -> str:
        """Return the URL at the leader, or at another broker."""
        others = (one for one in self._cluster.broker_ids if one != self.leader)
        return self._cluster.registry_url(self.leader if asked == "leader" else next(others))

    def measure(self, asked: str, made: Callable[[int], Request], count: int) -> dict[str, float]:
        """Send ``count`` requests, none of which was sent before if that matters."""
        pids = [self._cluster.broker_pid(one) for one in self._cluster.broker_ids]
        processes = [one for one in pids if one is not None]
        numbers = range(self._next, self._next + count)
        self._next += count
        before, began = cpu_seconds(processes), time.perf_counter()
        took = asyncio.run(load(self.url(asked), made, numbers))
        seconds = time.perf_counter() - began
        return {
            "requests/s": count / seconds,
            "p50 ms": 1_000 * percentile(took, 0.5),
            "p99 ms": 1_000 * percentile(took, 0.99),
            "CPU us": 1e6 * (cpu_seconds(processes) - before) / count,
        }


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line("Schema registry", "requests over HTTP", arguments)
    (count,) = bench.pick(full=(4_000,), quick=(400,))
    with running_cluster(
        brokers=BROKERS, forked=False, config={"registry.listener": "http://127.0.0.1:0"}
    ) as cluster:
        registry = Registry(cluster)
        for name, made in CASES.items():
            for asked in ("leader", "other"):
                registry.measure(asked, made, count // 10)
                bench.row(
                    {"request": name, "asked": asked},
                    bench.repeat(partial(registry.measure, asked, made, count)),
                )
    bench.finish()


if __name__ == "__main__":
    main()
