"""Warns of keys of topics that are accepted and have no effect here: nobody should rely on them."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from quorate.broker.config.topic_keys import NAMES_WITHOUT_EFFECT
from quorate.metadata_log.image import Image
from quorate_proto.v1 import admin_pb2

_log: Final = logging.getLogger(__name__)


def warn_of_ignored_keys(image: Image) -> None:
    """Warn once of all keys without effect that topics set, when a broker starts."""
    used = Counter(
        name
        for (kind, _), values in image.configs.items()
        if kind == "topic"
        for name in values
        if name in NAMES_WITHOUT_EFFECT
    )
    if used:
        named = ", ".join(f"{name} ({count} topics)" for name, count in sorted(used.items()))
        _log.warning("topics set keys that have no effect here: %s", named)


def warn_of_ignored_changes(
    changes: Iterable[tuple[str, str, Mapping[str, str]]], results: Iterable[admin_pb2.ConfigResult]
) -> None:
    """Warn once of all keys without effect that a request has set.

    Each of the ``changes`` has the type and the name of its entity, and what is set.
    """
    named = {
        (name, key)
        for (kind, name, values), result in zip(changes, results, strict=True)
        if kind == "topic" and not result.error_code
        for key in values
        if key in NAMES_WITHOUT_EFFECT
    }
    if named:
        topics = sorted({topic for topic, _ in named})
        keys = ", ".join(sorted({key for _, key in named}))
        more = f" and {len(topics) - 1} more" if len(topics) > 1 else ""
        _log.warning("topic %s%s: set, but without effect here: %s", topics[0], more, keys)
