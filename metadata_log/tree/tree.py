"""The image as a tree of paths, as ZooKeeper users know it.

``tree.values`` computes the values that are shown.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from quorate.metadata_log.client_quotas import ClientQuotaEntity
from quorate.metadata_log.image import Image
from quorate.metadata_log.tree import acl_tree
from quorate.metadata_log.tree import values as tree_values
from quorate.metadata_log.tree.values import Below, Readable, Value


def children(image: Image, path: str) -> list[str] | None:
    """Return the names directly below ``path``, sorted, or None if nothing is there."""
    parts = _parts(path)
    place, below = _place(parts)
    if place is not None:
        names = place.names(image, below)
        if names is None and place.value(image, below) is not None:
            return []
        return names
    between = {prefix[len(parts)] for prefix in _PLACES if prefix[: len(parts)] == parts}
    return sorted(between) or None


def value_at(image: Readable, path: str) -> Value | None:
    """Return the value recorded at ``path``, or None if there is none. A folder has no value."""
    place, below = _place(_parts(path))
    return None if place is None else place.value(image, below)


def walk(image: Image, path: str = "/") -> Iterator[str]:
    """Yield every path at and below ``path`` that has a value, in order."""
    clean = "/" + "/".join(_parts(path))
    if value_at(image, clean) is not None:
        yield clean
    for name in children(image, clean) or ():
        yield from walk(image, f"{clean.rstrip('/')}/{name}")


def _parts(path: str) -> Below:
    return tuple(part for part in path.split("/") if part)


# --- kinds of places ----------------------------------------------------------------------------


class _Place(NamedTuple):
    """A part of the tree whose names and values are computed in one way."""

    names: Callable[[Image, Below], list[str] | None]
    value: Callable[[Readable, Below], Value | None]


def _record(value: Callable[[Readable], Value | None]) -> _Place:
    """A place with one record and nothing below it."""
    return _Place(lambda image, below: None, lambda image, below: None if below else value(image))


def _table(
    names: Callable[[Image], Iterable[str]], value: Callable[[Readable, str], Value | None]
) -> _Place:
    """A place with records by name."""
    return _Place(
        lambda image, below: None if below else list(names(image)),
        lambda image, below: value(image, below[0]) if len(below) == 1 else None,
    )


def _tables(
    outer: Callable[[Image], Iterable[str]],
    inner: Callable[[Image, str], Iterable[str]],
    value: Callable[[Readable, str, str], Value | None],
) -> _Place:
    """A place with tables of records, by name."""

    def names(image: Image, below: Below) -> list[str] | None:
        if not below:
            return list(outer(image))
        return list(inner(image, below[0])) or None if len(below) == 1 else None

    return _Place(names, lambda image, below: value(image, *below) if len(below) == 2 else None)


# --- the tree -----------------------------------------------------------------------------------

_PLACES: Final[dict[Below, _Place]] = {
    ("acls",): _Place(
        lambda image, below: acl_tree.names_below(image, below, tree_values.quoted),
        lambda image, below: acl_tree.value_below(image, below, tree_values.unquoted),
    ),
    ("admin", "delete_topics"): _table(
        lambda image: sorted(image.deletions), tree_values.deletion_at
    ),
    ("admin", "partitions_add"): _tables(
        lambda image: sorted(image.additions), tree_values.added_numbers, tree_values.addition
    ),
    ("admin", "partitions_remove"): _tables(
        lambda image: sorted(image.removals), tree_values.removed_numbers, tree_values.removal
    ),
    ("admin", "partitions_reassigned"): _tables(
        lambda image: sorted(image.reassignments),
        lambda image, name: tree_values.numbers(image.reassignments.get(name, {})),
        tree_values.reassignment_at,
    ),
    ("brokers", "ids"): _table(
        lambda image: tree_values.numbers(image.brokers), tree_values.broker_at
    ),
    ("brokers", "topics"): _Place(tree_values.names_below_topics, tree_values.value_below_topics),
    ("config",): _tables(
        lambda image: sorted({entity_type for entity_type, _ in image.configs}),
        tree_values.config_names,
        tree_values.config,
    ),
    ("controller",): _record(tree_values.controller),
    ("controller_epoch",): _record(lambda image: image.controller_epoch),
    ("features",): _table(
        lambda image: sorted(image.features), lambda image, name: image.features.get(name)
    ),
    ("pipelines",): _table(lambda image: sorted(image.pipelines), tree_values.pipeline_at),
    ("producer_ids",): _record(lambda image: {"next_producer_id": image.next_producer_id}),
    ("quotas", "clients"): _table(
        lambda image: tree_values.clients_with_quotas(image, None),
        lambda image, name: tree_values.quotas_of(
            image, ClientQuotaEntity(client_id=tree_values.unquoted(name))
        ),
    ),
    ("quotas", "ips"): _table(
        lambda image: sorted(
            tree_values.quoted(entity.ip) for entity in image.client_quotas if entity.ip is not None
        ),
        lambda image, name: tree_values.quotas_of(
            image, ClientQuotaEntity(ip=tree_values.unquoted(name))
        ),
    ),
    ("quotas", "users"): _Place(
        tree_values.names_below_quotas_of_users, tree_values.value_below_quotas_of_users
    ),
    ("quorum", "voters"): _record(tree_values.quorum_voters),
    ("scram",): _tables(
        lambda image: sorted({tree_values.quoted(user) for user, _ in image.scram}),
        tree_values.scram_mechanisms,
        tree_values.scram,
    ),
    ("sessions",): _table(
        lambda image: sorted(session_id.hex() for session_id in image.sessions),
        tree_values.session_at,
    ),
    ("tokens",): _table(lambda image: sorted(image.tokens), tree_values.token_at),
}


def _place(parts: Below) -> tuple[_Place | None, Below]:
    """Return the place that contains ``parts``, and the rest of the path."""
    for length in (1, 2):
        place = _PLACES.get(parts[:length])
        if place is not None:
            return place, parts[length:]
    return None, ()
