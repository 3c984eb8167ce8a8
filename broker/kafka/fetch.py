"""Fetch (1): a consumer's long poll. No fetch sessions: every request names all its partitions.

The records of the answer are the log's own buffers, put between headers and written as they are.
"""

from typing import Final

from broker.config.listeners import FETCH_MAX_BYTES
from broker.kafka.fetch_answer import encode
from broker.kafka.fetch_request import FINAL_EPOCH, NO_SESSION, FetchRequest
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from broker.replication.api import FetchOutcome, isolation_of
from metadata_log.acls import AclOperation
from quorate_proto.v1 import errors_pb2

_FIRST_EPOCH: Final = 0
_NOT_AUTHORIZED: Final = FetchOutcome(errors_pb2.TOPIC_AUTHORIZATION_FAILED)


def answer_bytes_max(services: KafkaServices, request: FetchRequest) -> int:
    """How much one answer may hold; a single batch may be larger."""
    return max(0, min(request.max_bytes, services.config[FETCH_MAX_BYTES]))


async def handle(
    services: KafkaServices, context: RequestContext, request: FetchRequest
) -> Buffers:
    refusal = _session_error(request)
    if refusal != errors_pb2.NONE:
        return encode(context.version, request.isolation_level, error_code=refusal)
    rights = services.authorizer.rights_of(context)
    readable = rights.topics(AclOperation.READ, (topic for topic, _ in request.topics))
    max_bytes = answer_bytes_max(services, request)
    wants = [want for topic, wants in request.topics if topic in readable for want in wants]
    if not wants:
        found = []
    else:
        responses = services.memory.responses
        found = await services.replicas.fetch(
            wants,
            max_wait_ms=await responses.wait_for_room(max(0, request.max_wait_ms)),
            min_bytes=min(request.min_bytes, max_bytes),
            max_bytes=max_bytes,
            room=context.lease,
            isolation=isolation_of(request.isolation_level),
        )
    remaining = iter(found)
    topics = [
        (
            topic,
            [
                (want.tp.partition, next(remaining) if topic in readable else _NOT_AUTHORIZED)
                for want in wants
            ],
        )
        for topic, wants in request.topics
    ]
    return encode(context.version, request.isolation_level, topics)


def _session_error(request: FetchRequest) -> int:
    """Answering session id 0 to epoch 0 tells a client that it got no session; so whoever names
    one is thinking of another broker, or of an earlier life of this one."""
    if request.session_id != NO_SESSION:
        return errors_pb2.FETCH_SESSION_ID_NOT_FOUND
    if request.session_epoch not in (FINAL_EPOCH, _FIRST_EPOCH):
        return errors_pb2.INVALID_FETCH_SESSION_EPOCH
    return errors_pb2.NONE
