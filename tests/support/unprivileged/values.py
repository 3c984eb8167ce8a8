"""Random values: of what exists, of what nearly does, and extremes."""

import random
from collections.abc import Sequence
from typing import Final

from bench.hostile_requests.good_clients import TOPIC
from bench.hostile_requests.values import VICTIM
from bench.hostile_requests.world import NOBODY, ROOT

NAMES: Final = (
    TOPIC, VICTIM, NOBODY, ROOT, f"User:{NOBODY}", f"User:{ROOT}", "User:CN=admin", "User:*",
    "ANONYMOUS", "__consumer_offsets", "__transaction_state", "kafka-cluster", "*", "", ".", "..",
    "../../etc/passwd", "a/b", "a\x00b", "\x1b[2J\n", "\u202e", "x" * 300, "1", "-1", "broker",
    "topic", "user", "client-id", "ip", "metadata_version", "inter_broker_protocol",
    "retention.ms", "controller_mutation_rate", "super.users", "authorizer.class.name",
    "log_level", "SCRAM-SHA-256", "PLAIN", "consumer", "range", "uncommitted",
)  # fmt: skip
"""Names that exist, words that mean something somewhere, and some that a parser may trip over."""

WAITING: Final = ("timeout", "wait", "lease")
"""Parts of names of fields that say how long to wait: these are kept short."""

WAIT_MS_MAX: Final = 200


def text(chance: random.Random) -> str:
    return chance.choice(NAMES) if chance.random() < 0.95 else "y" * chance.randint(1, 2_000)


def raw(chance: random.Random, known: Sequence[bytes] = ()) -> bytes:
    """Some bytes: an id that exists, an id that does not, or noise."""
    if known and chance.random() < 0.5:
        return chance.choice(known)
    return chance.randbytes(chance.choice((0, 1, 16, 64, 200)))


def number(chance: random.Random, bits: int, *, signed: bool = True) -> int:
    """A small number, an extreme one, or any."""
    least = -(1 << (bits - 1)) if signed else 0
    most = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
    extremes = [number for number in (-2, -1, 0, 1, 2, 3, 10**6, least, most)]
    candidates = [one for one in extremes if least <= one <= most]
    return chance.choice(candidates) if chance.random() < 0.9 else chance.randint(least, most)


def waits(field_name: str) -> bool:
    return any(part in field_name for part in WAITING)
