"""Create-, Renew-, Expire- and DescribeDelegationToken (38 to 41, KIP-48, KIP-373).

Changes are carried out by the controller, wherever they arrive; any broker describes from its own
image.
"""

from typing import Final

from broker.control.changes import (
    CREATE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)
from broker.kafka import codec
from broker.kafka.admin_context import admin_context, ask_controller
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from broker.security.principal import KafkaPrincipal, parse_principal
from quorate_proto.v1 import admin_pb2

_NO_DEADLINE: Final = 0
"""These requests name none: the broker's own limit holds."""


async def create_delegation_token(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    owner_name = request.get("owner_principal_name")
    owner = KafkaPrincipal(owner_name, request["owner_principal_type"] or "") if owner_name else ""
    answer = await ask_controller(
        services,
        context,
        CREATE_DELEGATION_TOKEN,
        admin_pb2.CreateDelegationTokenRequest(
            context=admin_context(context, "CreateDelegationToken", _NO_DEADLINE),
            owner=str(owner),
            renewers=map(_principal, request["renewers"]),
            max_lifetime_ms=request["max_lifetime"],
        ),
    )
    made = answer.HasField("token")
    token = answer.token if made else _refused(str(owner or context.principal), context)
    values = {**_token(token), "hmac": answer.hmac, "error_code": answer.error_code}
    return _answer("create_delegation_token", context, values)


async def renew_delegation_token(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    answer = await ask_controller(
        services,
        context,
        RENEW_DELEGATION_TOKEN,
        admin_pb2.RenewDelegationTokenRequest(
            context=admin_context(context, "RenewDelegationToken", _NO_DEADLINE),
            hmac=bytes(request["hmac"]),
            renew_period_ms=request["renew_period"],
        ),
    )
    values = {"error_code": answer.error_code, "expiry_timestamp": answer.expiry_ms}
    return _answer("renew_delegation_token", context, values)


async def expire_delegation_token(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    answer = await ask_controller(
        services,
        context,
        EXPIRE_DELEGATION_TOKEN,
        admin_pb2.ExpireDelegationTokenRequest(
            context=admin_context(context, "ExpireDelegationToken", _NO_DEADLINE),
            hmac=bytes(request["hmac"]),
            expiry_time_period_ms=request["expiry_time_period"],
        ),
    )
    values = {"error_code": answer.error_code, "expiry_timestamp": answer.expiry_ms}
    return _answer("expire_delegation_token", context, values)


async def describe_delegation_token(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    owners = request["owners"]
    answer = await services.describe_tokens(
        admin_pb2.DescribeDelegationTokensRequest(
            context=admin_context(context, "DescribeDelegationToken", _NO_DEADLINE),
            owners=map(_principal, owners or ()),
        )
    )
    of_nobody = owners is not None and not owners
    values = {
        "error_code": answer.error_code,
        "tokens": [] if of_nobody else [_token(one) for one in answer.tokens],
    }
    return _answer("describe_delegation_token", context, values)


def _answer(name: str, context: RequestContext, values: Message) -> Buffers:
    return [codec.encode_response(name, context.version, {"throttle_time": 0, **values})]


def _refused(owner: str, context: RequestContext) -> admin_pb2.DelegationToken:
    """In place of a token that was not made."""
    return admin_pb2.DelegationToken(owner=owner, requester=str(context.principal))


def _token(token: admin_pb2.DelegationToken) -> Message:
    owner, requester = parse_principal(token.owner), parse_principal(token.requester)
    return {
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
        "issue_timestamp": token.issue_ms,
        "expiry_timestamp": token.expiry_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": token.hmac,
        "renewers": [
            {"principal_type": one.type, "principal_name": one.name}
            for one in map(parse_principal, token.renewers)
        ],
    }


def _principal(named: Message) -> str:
    return str(KafkaPrincipal(named["principal_name"], named["principal_type"]))
