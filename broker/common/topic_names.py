"""The rules for the names of topics, which are Kafka's."""

import re
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate_proto.v1 import errors_pb2

NAME_LENGTH_MAX: Final = 249
"""The longest name: the length of a folder name, 255 bytes, less a dash and a partition number of
five digits."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def checked_name(name: str) -> None:
    """Refuse a name that breaks the rules.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION, with the rule.
    """
    fault = fault_of_name(name)
    if fault is not None:
        raise KafkaError(errors_pb2.INVALID_TOPIC_EXCEPTION, f"topic name {name[:300]!r} {fault}")


def fault_of_name(name: str) -> str | None:
    """Return the rule that a name breaks, or None."""
    if not name:
        return "must not be empty"
    if name in (".", ".."):
        return 'must not be "." or ".."'
    if len(name) > NAME_LENGTH_MAX:
        return f"has {len(name)} characters, at most {NAME_LENGTH_MAX} are allowed"
    if not _LEGAL.fullmatch(name):
        return "may hold ASCII letters, digits, '.', '_' and '-' alone"
    return None


def may_collide(name: str) -> bool:
    """Return whether another name can have the same ``folded_name`` as this one."""
    return "." in name or "_" in name


def folded_name(name: str) -> str:
    """Return the form in which names collide, because metric names do not distinguish '.' and
    '_'."""
    return name.replace(".", "_")
