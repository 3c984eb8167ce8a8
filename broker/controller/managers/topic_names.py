"""Kafka's rules for topic names."""

import re
from typing import Final

from broker.errors import KafkaError
from quorate_proto.v1 import errors_pb2

NAME_LENGTH_MAX: Final = 249
"""A folder name of 255 bytes, less a dash and a partition number of five digits."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def checked_name(name: str) -> None:
    """Refuse a name that breaks the rules.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION, saying which rule.
    """
    if not name:
        raise _invalid(name, "must not be empty")
    if name in (".", ".."):
        raise _invalid(name, 'must not be "." or ".."')
    if len(name) > NAME_LENGTH_MAX:
        raise _invalid(name, f"has {len(name)} characters, at most {NAME_LENGTH_MAX} are allowed")
    if not _LEGAL.fullmatch(name):
        raise _invalid(name, "may hold ASCII letters, digits, '.', '_' and '-' alone")


def may_collide(name: str) -> bool:
    """Whether another name can fold to the same."""
    return "." in name or "_" in name


def folded_name(name: str) -> str:
    """Names that fold to the same collide: metric names know no difference of '.' and '_'."""
    return name.replace(".", "_")


def _invalid(name: str, why: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_TOPIC_EXCEPTION, f"topic name {name[:300]!r} {why}")
