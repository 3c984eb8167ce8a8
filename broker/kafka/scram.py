"""DescribeUserScramCredentials (50), AlterUserScramCredentials (51): users of SCRAM (KIP-554)."""

from broker.control.changes import ALTER_USER_SCRAM_CREDENTIALS
from broker.control.forwarding import DEFAULT_TIMEOUT_MS
from broker.kafka import codec
from broker.kafka.admin_context import admin_context, ask_controller
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from broker.security.scram_users import describe_users
from metadata_log.acls import AclOperation
from quorate_proto.v1 import admin_pb2


async def describe_user_scram_credentials(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    services.authorizer.rights_of(context).require_cluster(AclOperation.DESCRIBE)
    names = [one["name"] for one in request["users"] or ()]
    response = describe_users(services.image(), names)
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
        for one in response.users
    ]
    values: Message = {
        "throttle_time": 0,
        "error_code": response.error_code,
        "error_message": response.error_message or None,
        "results": results,
    }
    return [codec.encode_response("describe_user_scram_credentials", context.version, values)]


async def alter_user_scram_credentials(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    response = await ask_controller(
        services,
        context,
        ALTER_USER_SCRAM_CREDENTIALS,
        admin_pb2.AlterUserScramCredentialsRequest(
            context=admin_context(context, "AlterUserScramCredentials", DEFAULT_TIMEOUT_MS),
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
    return [codec.encode_response("alter_user_scram_credentials", context.version, values)]
