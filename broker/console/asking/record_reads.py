"""Reads records for the message viewer: as a consumer with the rights of the person, in small
bounded steps.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from quorate.broker.common.errors import error_name
from quorate.broker.console.asking.cluster_requests import ClusterRequests
from quorate.broker.console.asking.console_apis import FETCH
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.asking.person import Person
from quorate.broker.console.views.record_view import Aborted, Scan, scan
from quorate.broker.kafka.wire.codec import Message
from quorate.common.types import TopicPartition

FETCH_BYTES: Final = 512 << 10
"""The bytes of one step. A larger batch comes whole."""

STEPS_MAX: Final = 24
"""The most steps of one page."""

SEARCH_S: Final = 2.0
"""The time after which a search ends. The person goes on from where it is."""


class ReadEnd(NamedTuple):
    """Where a read ended. ``end_offset`` is the high watermark."""

    scan: Scan
    log_start_offset: int
    end_offset: int
    is_at_end: bool


async def read_records(
    requests: ClusterRequests,
    person: Person,
    tp: TopicPartition,
    state: Scan,
    clock_s: Callable[[], float],
) -> ReadEnd:
    """Read from ``state.next_offset`` on, until enough is found or the bounds are reached.

    Raises:
        AskFailed: the partition cannot be read, or the person may not read it.
    """
    ends_s = clock_s() + SEARCH_S
    start = end = -1
    for _ in range(STEPS_MAX):
        before = state.next_offset
        answer = await requests.ask(person, FETCH, _fetch(tp, state), requests.leader_of(tp))
        one = _partition(answer)
        start, end = one["log_start_offset"], one["high_watermark"]
        aborted = [Aborted(*found.values()) for found in one["aborted_transactions"] or ()]
        await asyncio.to_thread(scan, state, one["records"] or b"", aborted, str(tp))
        if state.is_full or state.next_offset == before or clock_s() >= ends_s:
            break
    return ReadEnd(state, start, end, state.next_offset >= end)


def _fetch(tp: TopicPartition, state: Scan) -> Message:
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": FETCH_BYTES,
        "isolation_level": int(state.skip_aborted),
        "topics": [
            {
                "topic": tp.topic,
                "partitions": [
                    {
                        "partition": tp.partition,
                        "fetch_offset": state.next_offset,
                        "partition_max_bytes": FETCH_BYTES,
                    }
                ],
            }
        ],
        "forgotten_topics_data": [],
    }


def _partition(answer: Message) -> Message:
    if answer["error_code"]:
        raise AskFailed(error_name(answer["error_code"]))
    found: Message = answer["responses"][0]["partitions"][0]
    if found["error_code"]:
        raise AskFailed(error_name(found["error_code"]))
    return found
