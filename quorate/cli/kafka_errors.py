"""Explains errors of librdkafka, and what the user can do about them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


@dataclass
class Troubles:
    """Remembers the last connection error that librdkafka reported to ``error_cb``.

    librdkafka goes on trying, and in the end reports only that the time is up.
    """

    last: str = ""

    def __call__(self, error: "KafkaError") -> None:
        if error.name() != "_ALL_BROKERS_DOWN":
            self.last = error.str()

    def with_last(self, message: str) -> str:
        """Return the message, together with the last connection error, which may explain it."""
        return f"{message} ({self.last})" if self.last else message


def explained(error: "KafkaError", operation: str, topic: str) -> str:
    """Return the error in words; for a missing right, also how to allow ``operation`` on the
    topic."""
    if error.name() != "TOPIC_AUTHORIZATION_FAILED":
        return error.str()
    return (
        f"{error.str()}: it takes `quorate acls --add --allow-principal User:… "
        f"--operation {operation} --topic {topic}`"
    )
