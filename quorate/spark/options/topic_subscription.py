"""The subscription of a query: topics by name, topics by pattern, or single partitions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from quorate.spark.errors import OptionError
from quorate.spark.options.offset_positions import json_object
from quorate.spark.options.option_declaration import OptionKind

_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[2]}'


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions that a query reads. Exactly one of the three fields is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None


def _parse_topics(name: str, text: str) -> Subscription:
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise OptionError(f"option {name} names no topic: {text!r}")
    return Subscription(topics=topics)


def _parse_pattern(name: str, text: str) -> Subscription:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"option {name} is no pattern ({error}): {text!r}") from None
    if not text:
        raise OptionError(f"option {name} is empty")
    return Subscription(pattern=text)


def _parse_assigned(name: str, text: str) -> Subscription:
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, partitions in json_object(name, text, _ASSIGN_EXAMPLE).items():
        if not isinstance(partitions, list) or not all(
            isinstance(number, int) and not isinstance(number, bool) and number >= 0
            for number in partitions
        ):
            raise OptionError(
                f"option {name}: {partitions!r} of {topic!r} is no list of partition numbers; "
                f"write it as {_ASSIGN_EXAMPLE}"
            )
        if partitions:
            assigned[topic] = tuple(sorted(set(partitions)))
    if not assigned:
        raise OptionError(f"option {name} names no partition: {text!r}; as in {_ASSIGN_EXAMPLE}")
    return Subscription(partitions=assigned)


TOPIC_NAMES = OptionKind("topics, with commas between", _parse_topics)
TOPIC_PATTERN = OptionKind("a regular expression that the whole name must match", _parse_pattern)
ASSIGNED = OptionKind(f"JSON {_ASSIGN_EXAMPLE}", _parse_assigned)
