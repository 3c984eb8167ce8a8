"""The image as a tree of paths, as ZooKeeper users know it: what lies where, and below what.

Values are what JSON can say. Names that may hold a slash (users, for instance) are quoted as in
URLs; the default of an entity type is ``<default>``.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from metadata_log import acl_tree
from metadata_log.client_quotas import QuotaEntity
from metadata_log.image import Broker, EntityKey, Image, Partition, Reassignment, ScramKey
from metadata_log.rules.scram import MECHANISMS
from metadata_log.types import BrokerId, SessionId, TopicPartition

DEFAULT_ENTITY: Final = "<default>"

Value = Any
"""What ``json.dumps`` takes."""

Below = tuple[str, ...]
"""Parts of a path below the place in question."""


def children(image: Image, path: str) -> list[str] | None:
    """Names directly below ``path``, sorted; None: nothing is there."""
    parts = _parts(path)
    place, below = _place(parts)
    if place is not None:
        names = place.names(image, below)
        if names is None and place.value(image, below) is not None:
            return []
        return names
    between = {prefix[len(parts)] for prefix in _PLACES if prefix[: len(parts)] == parts}
    return sorted(between) or None


def value_at(image: Image, path: str) -> Value | None:
    """What is recorded at ``path``; None: nothing, or only a place for what lies below."""
    place, below = _place(_parts(path))
    return None if place is None else place.value(image, below)


def walk(image: Image, path: str = "/") -> Iterator[str]:
    """Every path at and below ``path`` at which something is recorded, in order."""
    clean = "/" + "/".join(_parts(path))
    if value_at(image, clean) is not None:
        yield clean
    for name in children(image, clean) or ():
        yield from walk(image, f"{clean.rstrip('/')}/{name}")


def _parts(path: str) -> Below:
    return tuple(part for part in path.split("/") if part)


# --- kinds of places ----------------------------------------------------------------------------


class _Place(NamedTuple):
    """A part of the tree that is filled in one way."""

    names: Callable[[Image, Below], list[str] | None]
    value: Callable[[Image, Below], Value | None]


def _record(value: Callable[[Image], Value | None]) -> _Place:
    """One record, with nothing below."""
    return _Place(lambda image, below: None, lambda image, below: None if below else value(image))


def _table(
    names: Callable[[Image], Iterable[str]], value: Callable[[Image, str], Value | None]
) -> _Place:
    """Records by name."""
    return _Place(
        lambda image, below: None if below else list(names(image)),
        lambda image, below: value(image, below[0]) if len(below) == 1 else None,
    )


def _tables(
    outer: Callable[[Image], Iterable[str]],
    inner: Callable[[Image, str], Iterable[str]],
    value: Callable[[Image, str, str], Value | None],
) -> _Place:
    """Tables by name."""

    def names(image: Image, below: Below) -> list[str] | None:
        if not below:
            return list(outer(image))
        return list(inner(image, below[0])) or None if len(below) == 1 else None

    return _Place(names, lambda image, below: value(image, *below) if len(below) == 2 else None)


# --- values -------------------------------------------------------------------------------------


def _numbers(keys: Iterable[int]) -> list[str]:
    return [str(number) for number in sorted(keys)]


def _quoted(name: str) -> str:
    return quote(name, safe="") if name else DEFAULT_ENTITY


def _unquoted(name: str) -> str:
    return "" if name == DEFAULT_ENTITY else unquote(name)


def _partition(image: Image, name: str, number: str) -> Partition | None:
    return image.partition(TopicPartition(name, int(number))) if number.isdecimal() else None


def _controller(image: Image) -> Value | None:
    """Kafka's content of the node, timestamp as text (E1)."""
    holder = image.controller
    if holder is None:
        return None
    return {"version": 1, "brokerid": holder.broker_id, "timestamp": str(holder.timestamp_ms)}


def _broker_at(image: Image, number: str) -> Value | None:
    broker = image.brokers.get(BrokerId(int(number))) if number.isdecimal() else None
    return None if broker is None else _broker(broker)


def _broker(broker: Broker) -> Value:
    registration = broker.registration
    return {
        "broker_epoch": broker.epoch,
        "incarnation_id": registration.incarnation_id.hex(),
        "kafka": str(broker.kafka),
        "grpc": str(broker.grpc),
        "inter_broker": str(broker.inter_broker),
        "listeners": {one.name: str(one.endpoint) for one in registration.listeners},
        "rack": registration.rack,
        "session_id": registration.session_id.hex(),
        "admitted": broker.admitted,
        "log_may_be_lost": registration.log_may_be_lost,
        "inter_broker_protocol_max": registration.inter_broker_protocol_max,
        "metadata_version_max": registration.metadata_version_max,
    }


def _topic(image: Image, name: str) -> Value | None:
    topic = image.topics.get(name)
    if topic is None:
        return None
    assigned = {str(number): leaf.replicas for number, leaf in enumerate(topic.partitions)}
    return {
        "topic_id": topic.topic_id.hex(),
        "partitions": assigned,
        "leader_epoch_floor": topic.leader_epoch_floor,
        "removals": [
            {"first_partition": one.first_partition, "offset": one.offset} for one in topic.removals
        ],
        "version": topic.version,
    }


def _names_below_topics(image: Image, below: Below) -> list[str] | None:
    match below:
        case ():
            return sorted(image.topics)
        case (name,) if name in image.topics:
            return _numbers(range(len(image.topics[name].partitions)))
        case (name, number) if _partition(image, name, number) is not None:
            return ["leaderAndISR"]
    return None


def _value_below_topics(image: Image, below: Below) -> Value | None:
    match below:
        case (name,):
            return _topic(image, name)
        case (name, number, "leaderAndISR"):
            partition = _partition(image, name, number)
            return None if partition is None else _leader_and_isr(partition)
    return None


def _leader_and_isr(partition: Partition) -> Value:
    return {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "controller_id": partition.controller_id,
        "controller_epoch": partition.controller_epoch,
        "version": partition.version,
    }


def _deletion(image: Image, name: str) -> Value | None:
    deletion = image.deletions.get(name)
    if deletion is None:
        return None
    return {"topic_id": deletion.topic_id.hex(), "version": deletion.version}


def _added_numbers(image: Image, name: str) -> list[str]:
    pending = image.additions.get(name)
    if pending is None:
        return []
    first = pending.first_partition
    return _numbers(range(first, first + len(pending.replicas)))


def _addition(image: Image, name: str, number: str) -> Value | None:
    if number not in _added_numbers(image, name):
        return None
    pending = image.additions[name]
    replicas = pending.replicas[int(number) - pending.first_partition]
    return {"replicas": replicas, "version": pending.version}


def _removed_numbers(image: Image, name: str) -> list[str]:
    pending, topic = image.removals.get(name), image.topics.get(name)
    if pending is None or topic is None:
        return []
    return _numbers(range(pending.first_partition, len(topic.partitions)))


def _removal(image: Image, name: str, number: str) -> Value | None:
    if number not in _removed_numbers(image, name):
        return None
    return {"version": image.removals[name].version}


def _reassignment_at(image: Image, name: str, number: str) -> Value | None:
    if not number.isdecimal():
        return None
    pending = image.reassignment(TopicPartition(name, int(number)))
    return None if pending is None else _reassignment(pending)


def _config_names(image: Image, entity_type: str) -> list[str]:
    return sorted(_quoted(name) for one, name in image.configs if one == entity_type)


def _config(image: Image, entity_type: str, name: str) -> Value | None:
    values = image.configs.get(EntityKey((entity_type, _unquoted(name))))
    return None if values is None else dict(sorted(values.items()))


def _reassignment(pending: Reassignment) -> Value:
    return {"target": pending.target, "original": pending.original, "version": pending.version}


def _scram_mechanisms(image: Image, user: str) -> list[str]:
    own = {mechanism for one, mechanism in image.scram if one == _unquoted(user)}
    return [MECHANISMS[mechanism] for mechanism in sorted(own)]


def _scram(image: Image, user: str, mechanism: str) -> Value | None:
    """No more than that it is there: what is stored is as good as a password to a guesser."""
    numbers = [number for number, name in MECHANISMS.items() if name == mechanism]
    for number in numbers:
        credential = image.scram.get(ScramKey(_unquoted(user), number))
        if credential is not None:
            return {"iterations": credential.iterations}
    return None


def _token(image: Image, token_id: str) -> Value | None:
    token = image.tokens.get(token_id)
    if token is None:
        return None
    return {
        "owner": token.owner,
        "requester": token.requester,
        "renewers": token.renewers,
        "issue_ms": token.issue_ms,
        "expiry_ms": token.expiry_ms,
        "max_ms": token.max_ms,
        "version": token.version,
    }


def _names_below_quotas_of_users(image: Image, below: Below) -> list[str] | None:
    match below:
        case ():
            users = {user for user, _ in image.client_quotas if user is not None}
            return sorted(map(_quoted, users))
        case (user,):
            return ["clients"] if _clients_with_quotas(image, _unquoted(user)) else None
        case (user, "clients"):
            return _clients_with_quotas(image, _unquoted(user)) or None
    return None


def _clients_with_quotas(image: Image, user: str | None) -> list[str]:
    clients = {
        client_id for one, client_id in image.client_quotas if one == user and client_id is not None
    }
    return sorted(map(_quoted, clients))


def _value_below_quotas_of_users(image: Image, below: Below) -> Value | None:
    match below:
        case (user,):
            return _quotas(image, QuotaEntity(user=_unquoted(user)))
        case (user, "clients", client_id):
            return _quotas(image, QuotaEntity(_unquoted(user), _unquoted(client_id)))
    return None


def _quotas(image: Image, entity: QuotaEntity) -> Value | None:
    values = image.client_quotas.get(entity)
    return None if values is None else dict(sorted(values.items()))


def _voters(image: Image) -> Value | None:
    voter_set = image.voter_set
    if not voter_set.version:
        return None
    voters = [
        {
            "voter_id": voter.voter_id,
            "raft": str(voter.raft),
            "grpc": str(voter.grpc),
            "directory_id": voter.directory_id.hex(),
            "observer": voter.observer,
        }
        for voter in voter_set.voters
    ]
    return {"version": voter_set.version, "voters": voters}


def _session(image: Image, hexed: str) -> Value | None:
    try:
        session = image.sessions.get(SessionId(bytes.fromhex(hexed)))
    except ValueError:
        return None
    if session is None:
        return None
    return {"timeout_ms": session.timeout_ms, "description": session.description}


# --- the tree -----------------------------------------------------------------------------------

_PLACES: Final[dict[Below, _Place]] = {
    ("acls",): _Place(
        lambda image, below: acl_tree.names_below(image, below, _quoted),
        lambda image, below: acl_tree.value_below(image, below, _unquoted),
    ),
    ("admin", "delete_topics"): _table(lambda image: sorted(image.deletions), _deletion),
    ("admin", "partitions_add"): _tables(
        lambda image: sorted(image.additions), _added_numbers, _addition
    ),
    ("admin", "partitions_remove"): _tables(
        lambda image: sorted(image.removals), _removed_numbers, _removal
    ),
    ("admin", "partitions_reassigned"): _tables(
        lambda image: sorted(image.reassignments),
        lambda image, name: _numbers(image.reassignments.get(name, {})),
        _reassignment_at,
    ),
    ("brokers", "ids"): _table(lambda image: _numbers(image.brokers), _broker_at),
    ("brokers", "topics"): _Place(_names_below_topics, _value_below_topics),
    ("config",): _tables(
        lambda image: sorted({entity_type for entity_type, _ in image.configs}),
        _config_names,
        _config,
    ),
    ("controller",): _record(_controller),
    ("controller_epoch",): _record(lambda image: image.controller_epoch),
    ("features",): _table(
        lambda image: sorted(image.features), lambda image, name: image.features.get(name)
    ),
    ("producer_ids",): _record(lambda image: {"next_producer_id": image.next_producer_id}),
    ("quotas", "clients"): _table(
        lambda image: _clients_with_quotas(image, None),
        lambda image, name: _quotas(image, QuotaEntity(client_id=_unquoted(name))),
    ),
    ("quotas", "users"): _Place(_names_below_quotas_of_users, _value_below_quotas_of_users),
    ("quorum", "voters"): _record(_voters),
    ("scram",): _tables(
        lambda image: sorted({_quoted(user) for user, _ in image.scram}),
        _scram_mechanisms,
        _scram,
    ),
    ("sessions",): _table(
        lambda image: sorted(session_id.hex() for session_id in image.sessions), _session
    ),
    ("tokens",): _table(lambda image: sorted(image.tokens), _token),
}


def _place(parts: Below) -> tuple[_Place | None, Below]:
    """The place that ``parts`` lies in, and the rest of the way."""
    for length in (1, 2):
        place = _PLACES.get(parts[:length])
        if place is not None:
            return place, parts[length:]
    return None, ()
