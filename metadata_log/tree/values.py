"""Names and values that the tree of paths shows; values are what JSON can hold.

Names that may contain a slash (users, for instance) are quoted as in URLs; the default of an entity
type is ``<default>``. A function that returns None found nothing.
"""

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, unquote

from quorate.common.types import NO_BROKER, BrokerId, SessionId, TopicPartition
from quorate.metadata_log.client_quotas import ClientQuotaEntity
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.image import Broker, EntityKey, Image, ScramKey
from quorate.metadata_log.partitions import Partition, Reassignment
from quorate.metadata_log.rules.administration import MECHANISMS
from quorate.metadata_log.tree.readable import readable

DEFAULT_ENTITY: Final = "<default>"

Value = Any
"""Any value that ``json.dumps`` takes."""

Below = tuple[str, ...]
"""The parts of a path below the place in question."""

Readable = Image | Draft
"""Values can be read from an image, and from one that is still being drafted."""


def numbers(keys: Iterable[int]) -> list[str]:
    return [str(number) for number in sorted(keys)]


def quoted(name: str) -> str:
    return quote(name, safe="") if name else DEFAULT_ENTITY


def unquoted(name: str) -> str:
    return "" if name == DEFAULT_ENTITY else unquote(name)


def partition_at(image: Readable, name: str, number: str) -> Partition | None:
    return image.partition(TopicPartition(name, int(number))) if number.isdecimal() else None


def controller(image: Readable) -> Value | None:
    """Return Kafka's content of the node, with the timestamp as text (E1)."""
    holder = image.controller
    if holder is None:
        return None
    return {"version": 1, "brokerid": holder.broker_id, "timestamp": str(holder.timestamp_ms)}


def broker_at(image: Readable, number: str) -> Value | None:
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
        "lost_replicas": [
            {"topic_id": one.topic_id.hex(), "partition": one.partition} for one in broker.lost
        ],
        "inter_broker_protocol_max": registration.inter_broker_protocol_max,
        "metadata_version_max": registration.metadata_version_max,
    }


def _topic(image: Readable, name: str) -> Value | None:
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


def names_below_topics(image: Image, below: Below) -> list[str] | None:
    match below:
        case ():
            return sorted(image.topics)
        case (name,) if name in image.topics:
            return numbers(range(len(image.topics[name].partitions)))
        case (name, number) if partition_at(image, name, number) is not None:
            return ["leaderAndISR"]
    return None


def value_below_topics(image: Readable, below: Below) -> Value | None:
    match below:
        case (name,):
            return _topic(image, name)
        case (name, number, "leaderAndISR"):
            partition = partition_at(image, name, number)
            return None if partition is None else leader_and_isr(partition)
    return None


def leader_and_isr(partition: Partition) -> Value:
    return {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "controller_id": partition.controller_id,
        "controller_epoch": partition.controller_epoch,
        "version": partition.version,
    }


def deletion_at(image: Readable, name: str) -> Value | None:
    deletion = image.deletions.get(name)
    if deletion is None:
        return None
    return {"topic_id": deletion.topic_id.hex(), "version": deletion.version}


def added_numbers(image: Image, name: str) -> list[str]:
    pending = image.additions.get(name)
    if pending is None:
        return []
    first = pending.first_partition
    return numbers(range(first, first + len(pending.replicas)))


def addition(image: Readable, name: str, number: str) -> Value | None:
    pending = image.additions.get(name)
    if pending is None or not number.isdecimal():
        return None
    place = int(number) - pending.first_partition
    if not 0 <= place < len(pending.replicas):
        return None
    return {"replicas": pending.replicas[place], "version": pending.version}


def removed_numbers(image: Image, name: str) -> list[str]:
    pending, topic = image.removals.get(name), image.topics.get(name)
    if pending is None or topic is None:
        return []
    return numbers(range(pending.first_partition, len(topic.partitions)))


def removal(image: Readable, name: str, number: str) -> Value | None:
    pending = image.removals.get(name)
    if pending is None or partition_at(image, name, number) is None:
        return None
    return {"version": pending.version} if int(number) >= pending.first_partition else None


def reassignment_at(image: Readable, name: str, number: str) -> Value | None:
    if not number.isdecimal():
        return None
    pending = image.reassignment(TopicPartition(name, int(number)))
    return None if pending is None else _reassignment(pending)


def config_names(image: Image, entity_type: str) -> list[str]:
    return sorted(quoted(name) for one, name in image.configs if one == entity_type)


def config(image: Readable, entity_type: str, name: str) -> Value | None:
    values = image.configs.get(EntityKey((entity_type, unquoted(name))))
    return None if values is None else dict(sorted(values.items()))


def _reassignment(pending: Reassignment) -> Value:
    return {"target": pending.target, "original": pending.original, "version": pending.version}


def scram_mechanisms(image: Image, user: str) -> list[str]:
    own = {mechanism for one, mechanism in image.scram if one == unquoted(user)}
    return [MECHANISMS[mechanism] for mechanism in sorted(own)]


def scram(image: Readable, user: str, mechanism: str) -> Value | None:
    """Return only that the credential exists: the stored keys would help somebody who guesses
    passwords.
    """
    known = [number for number, name in MECHANISMS.items() if name == mechanism]
    for number in known:
        credential = image.scram.get(ScramKey(unquoted(user), number))
        if credential is not None:
            return {"iterations": credential.iterations}
    return None


def token_at(image: Readable, token_id: str) -> Value | None:
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


def pipeline_at(image: Readable, name: str) -> Value | None:
    pipeline = image.pipelines.get(name)
    return None if pipeline is None else readable(pipeline)


def names_below_quotas_of_users(image: Image, below: Below) -> list[str] | None:
    match below:
        case ():
            users = {entity.user for entity in image.client_quotas if entity.user is not None}
            return sorted(map(quoted, users))
        case (user,):
            return ["clients"] if clients_with_quotas(image, unquoted(user)) else None
        case (user, "clients"):
            return clients_with_quotas(image, unquoted(user)) or None
    return None


def clients_with_quotas(image: Image, user: str | None) -> list[str]:
    clients = {
        entity.client_id
        for entity in image.client_quotas
        if entity.user == user and entity.client_id is not None
    }
    return sorted(map(quoted, clients))


def value_below_quotas_of_users(image: Readable, below: Below) -> Value | None:
    match below:
        case (user,):
            return quotas_of(image, ClientQuotaEntity(user=unquoted(user)))
        case (user, "clients", client_id):
            return quotas_of(image, ClientQuotaEntity(unquoted(user), unquoted(client_id)))
    return None


def quotas_of(image: Readable, entity: ClientQuotaEntity) -> Value | None:
    values = image.client_quotas.get(entity)
    return None if values is None else dict(sorted(values.items()))


def quorum_voters(image: Readable) -> Value | None:
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


def session_at(image: Readable, hexed: str) -> Value | None:
    try:
        session = image.sessions.get(SessionId(bytes.fromhex(hexed)))
    except ValueError:
        return None
    if session is None:
        return None
    return {
        "timeout_ms": session.timeout_ms,
        "description": session.description,
        "broker_id": None if session.broker_id == NO_BROKER else session.broker_id,
    }
