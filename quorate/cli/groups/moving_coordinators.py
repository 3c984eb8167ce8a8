"""Asks the coordinator of a group again while another broker takes the group over."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

T = TypeVar("T")

_PAUSE_S: Final = 0.2
_MOVING: Final = frozenset(
    {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
)
"""The answers that say nothing of the group: its coordinator moves, which takes moments."""


def answer_of(
    ask: "Callable[[], Future[T]]",
    timeout_s: float,
    *,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return the answer to a question. ``ask`` sends it, once or more often within the timeout.

    Raises:
        confluent_kafka.KafkaException, TimeoutError: the last answer.
    """
    from confluent_kafka import KafkaException

    end_s = now_s() + timeout_s
    while True:
        try:
            return ask().result(timeout_s + 1)
        except KafkaException as error:
            if error.args[0].name() not in _MOVING or now_s() + _PAUSE_S >= end_s:
                raise
        sleep(_PAUSE_S)
