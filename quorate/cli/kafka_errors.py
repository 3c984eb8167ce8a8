"""Errors of librdkafka in words that say what to do."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


@dataclass
class Troubles:
    """What was wrong with connections last: ``error_cb`` of a client.

    librdkafka goes on trying, and at the end only says that time is up.
    """

    last: str = ""

    def __call__(self, error: "KafkaError") -> None:
        if error.name() != "_ALL_BROKERS_DOWN":
            self.last = error.str()

    def with_last(self, message: str) -> str:
        """The message, and the trouble that may explain it."""
        return f"{message} ({self.last})" if self.last else message


def explained(error: "KafkaError", operation: str, topic: str) -> str:
    """The error, and what lets ``operation`` on the topic if it was not allowed."""
    if error.name() != "TOPIC_AUTHORIZATION_FAILED":
        return error.str()
    return (
        f"{error.str()}: it takes `quorate acls --add --allow-principal User:… "
        f"--operation {operation} --topic {topic}`"
    )
