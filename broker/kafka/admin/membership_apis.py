"""The APIs about who belongs to a cluster: UnregisterBroker (64), AddRaftVoter (80) and
RemoveRaftVoter (81).

A broker is registered as long as its session with the quorum lasts, so there is nothing left to
remove of one that has stopped. Voters are added and removed by those who hold the certificate of an
administrator, and of no broker (decision 30): a broker that is taken over must not be able to
change the quorum. So a broker refuses it, and says how it is done.
"""

from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation
from quorate.common.types import BrokerId
from quorate_proto.v1 import errors_pb2

_DONE: Final[Message] = {"throttle_time": 0, "error_code": errors_pb2.NONE, "error_message": None}


async def unregister_broker(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """Answer that a broker that has stopped is not registered."""
    services.authorizer.rights_of(context).require_cluster(AclOperation.ALTER)
    image = services.images.image
    broker_id = BrokerId(request["broker_id"])
    if broker_id in image.brokers:
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"broker {broker_id} is running: move its replicas to others with `quorate brokers "
            f"decommission {broker_id}`, and stop it; its registration ends with it",
        )
    if broker_id not in image.histories:
        raise KafkaError(
            errors_pb2.BROKER_ID_NOT_REGISTERED, f"there never was a broker {broker_id}"
        )
    return _DONE


async def add_raft_voter(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    services.authorizer.rights_of(context).require_cluster(AclOperation.ALTER)
    raise _for_administrators(f"voter {request['voter_id']} is added", "add-voter")


async def remove_raft_voter(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    services.authorizer.rights_of(context).require_cluster(AclOperation.ALTER)
    raise _for_administrators(f"voter {request['voter_id']} is removed", "remove-voter")


def _for_administrators(what: str, command: str) -> KafkaError:
    return KafkaError(
        errors_pb2.INVALID_REQUEST,
        f"{what} with `quorate quorum {command}` and the certificate of an administrator: brokers "
        "may not change the voters of the metadata quorum",
    )
