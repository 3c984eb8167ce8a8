"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51) (KIP-554)."""

from quorate.broker.changes.table import ALTER_USER_SCRAM_CREDENTIALS
from quorate.broker.control.controller_forwarder import DEFAULT_TIMEOUT_MS
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.security.scram_users import describe_users
from quorate.common.acl_types import AclOperation
from quorate_proto.v1 import admin_pb2


async def describe_user_scram_credentials(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    services.authorizer.rights_of(context).require_cluster(AclOperation.DESCRIBE)
    names = [one["name"] for one in request["users"] or ()]
    response = await services.turns.carry_out(describe_users(services.images.image, names))
    await AnswerPrice(services, context).add(len(response.users))
    results = [
        {
            "user": one.user,
            "error_code": one.error_code,
            "error_message": one.error_message or None,
            "credential_infos": [
                {"mechanism": info.mechanism, "iterations": info.iterations}
                for info in one.credentials
            ],
        }
        async for one in services.turns.through(response.users)
    ]
    values: Message = {
        "throttle_time": 0,
        "error_code": response.error_code,
        "error_message": response.error_message or None,
        "results": results,
    }
    return values


async def alter_user_scram_credentials(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    response = await services.forwarder.forward(
        ALTER_USER_SCRAM_CREDENTIALS,
        admin_pb2.AlterUserScramCredentialsRequest(
            context=context.for_controller("AlterUserScramCredentials", DEFAULT_TIMEOUT_MS),
            deletions=[
                admin_pb2.ScramDeletion(user=one["name"], mechanism=one["mechanism"])
                for one in request["deletions"]
            ],
            upsertions=[
                admin_pb2.ScramUpsertion(
                    user=one["name"],
                    mechanism=one["mechanism"],
                    iterations=one["iterations"],
                    salt=bytes(one["salt"]),
                    salted_password=bytes(one["salted_password"]),
                )
                for one in request["upsertions"]
            ],
        ),
        api_version=context.version,
    )
    results = [
        {
            "user": one.user,
            "error_code": one.error_code,
            "error_message": one.error_message or None,
        }
        for one in response.results
    ]
    values: Message = {"throttle_time": 0, "results": results}
    return values
