"""The console of a broker with 1,000 topics and 100,000 partitions.

"page" is the time from the request to the whole page, and its size. "paint" is the time until
Chromium has painted it, where Chromium and Playwright are there. "open page" is the CPU that the
broker takes more while a browser shows the page, in percent of a core, against the same time
without one. "p99" is the time of an acknowledged record of a producer of 200 records per second,
without and with an open page, in turns.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from typing import Final
from urllib.parse import quote, urlsplit

from confluent_kafka import Producer

from bench._support import Bench, Cell, percentile
from bench.peers.processes import cpu_seconds
from quorate.client.results import NewTopic
from quorate.testing.running import RunningCluster, running_cluster

PAGES: Final = (
    "/",
    "/topics",
    "/topics?sort=in&page=7",
    "/topics/topic-0050",
    "/brokers",
    "/metadata",
)
LIVE: Final = ("/", "/topics", "/topics/topic-0050")
PAINTED: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
TOPICS_AT_ONCE: Final = 20
TIMEOUT_S: Final = 60.0
RECORDS_PER_S: Final = 200


def page_ms(url: str, path: str) -> dict[str, float]:
    """Return how long a page takes, and how large it is."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    began = time.perf_counter()
    connection.request("GET", path)
    body = connection.getresponse().read()
    took_ms = 1_000 * (time.perf_counter() - began)
    connection.close()
    return {"page ms": took_ms, "page kB": len(body) / 1_000}


@contextmanager
def painter() -> Iterator[Callable[[str], float] | None]:
    """Give a function that returns the time to the first contentful paint, or None."""
    chromium = shutil.which("chromium")
    if chromium is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

        def paint_ms(url: str) -> float:
            # The strict policy of the page would forbid the wait below.
            page = browser.new_page(bypass_csp=True)
            page.goto(url, wait_until="load")
            painted = float(page.wait_for_function(PAINTED).json_value())
            page.close()
            return painted

        yield paint_ms
        browser.close()


def open_page_percent(url: str, path: str, process: int, seconds: float) -> dict[str, float]:
    """Return the CPU of a broker without and with a browser that shows a page."""
    before = cpu_seconds([process])
    time.sleep(seconds)
    alone = cpu_seconds([process]) - before
    connection = HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    connection.request("GET", f"/events?at={quote(path)}")
    answer = connection.getresponse()
    answer.read1()
    before = cpu_seconds([process])
    time.sleep(seconds)
    shown = cpu_seconds([process]) - before
    answer.close()
    connection.close()
    return {
        "broker alone %": 100 * alone / seconds,
        "open page %": 100 * (shown - alone) / seconds,
    }


@contextmanager
def shown_page(url: str, path: str) -> Iterator[None]:
    """Keep the stream of a page open, and read what it sends, as a browser that shows it does."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    connection.request("GET", f"/events?at={quote(path)}")
    answer = connection.getresponse()
    over = threading.Event()

    def read() -> None:
        while not over.is_set() and answer.read1():
            pass

    reader = threading.Thread(target=read)
    reader.start()
    yield
    over.set()
    reader.join()
    connection.close()


def produce_ms(cluster: RunningCluster, seconds: float) -> list[float]:
    """Produce records at a steady rate, and return how long each took to be acknowledged."""
    settings = {"acks": "all", "linger.ms": 0, "enable.metrics.push": False}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    took_ms: list[float] = []

    def acknowledged(began: float, error: object, message: object) -> None:
        assert error is None, error
        took_ms.append(1_000 * (time.perf_counter() - began))

    begin = time.perf_counter()
    for number in range(round(seconds * RECORDS_PER_S)):
        producer.poll(max(0, begin + number / RECORDS_PER_S - time.perf_counter()))
        called = partial(acknowledged, time.perf_counter())
        producer.produce("topic-0000", b"x" * 200, partition=0, callback=called)
    producer.flush(TIMEOUT_S)
    return took_ms


def producer_p99(cluster: RunningCluster, path: str, seconds: float) -> dict[str, float]:
    """Return the p99 of a producer without and with an open page, in turns of a third each."""
    url = cluster.console_url(1)
    alone: list[float] = []
    shown: list[float] = []
    produce_ms(cluster, 1)
    for _ in range(3):
        alone += produce_ms(cluster, seconds / 3)
        with shown_page(url, path):
            shown += produce_ms(cluster, seconds / 3)
    return {"p99 alone ms": percentile(alone, 0.99), "p99 open ms": percentile(shown, 0.99)}


def fill(cluster: RunningCluster, topics: int, partitions: int) -> None:
    """Create topics without records."""
    names = [f"topic-{number:04}" for number in range(topics)]
    with cluster.admin() as admin:
        for first in range(0, topics, TOPICS_AT_ONCE):
            wanted = [
                NewTopic(name=name, num_partitions=partitions, replication_factor=1)
                for name in names[first : first + TOPICS_AT_ONCE]
            ]
            for created in admin.create_topics(wanted):
                created.raise_for_error()


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line("Console", "pages of a cluster with many partitions", arguments)
    (topics,) = bench.pick(full=(1_000,), quick=(100,))
    seconds = 60.0 if topics == 1_000 else 15.0
    with running_cluster(
        brokers=1, has_console=True, forked=False, config={"log.flush": "os"}
    ) as cluster:
        fill(cluster, topics, 100)
        url, process = cluster.console_url(1), cluster.broker_pid(1)
        assert process is not None
        page_ms(url, "/")
        with painter() as paint_ms:

            def look(path: str) -> dict[str, float]:
                painted = {} if paint_ms is None else {"paint ms": paint_ms(url + path)}
                return {**page_ms(url, path), **painted}

            for path in PAGES:
                bench.row(
                    {"page": path, "partitions": 100 * topics}, bench.repeat(partial(look, path))
                )
        for path in LIVE:
            case: dict[str, Cell] = {"page": path, "partitions": 100 * topics}
            used = open_page_percent(url, path, process, seconds)
            bench.row(case, {**used, **producer_p99(cluster, path, seconds)})
    bench.finish()


if __name__ == "__main__":
    main()
