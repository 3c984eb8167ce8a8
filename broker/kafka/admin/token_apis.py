"""The APIs Create-, Renew-, Expire- and DescribeDelegationToken (38 to 41, KIP-48, KIP-373).

Changes are carried out by the controller. Any broker describes tokens from its own image.
"""

from typing import Final

from quorate.broker.changes.table import (
    CREATE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.security.principal import KafkaPrincipal, parse_principal
from quorate_proto.v1 import admin_pb2

_NO_DEADLINE: Final = 0
"""The timeout of these requests, which have none. The broker's default applies."""


async def create_delegation_token(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    owner_name = request.get("owner_principal_name")
    owner = KafkaPrincipal(owner_name, request["owner_principal_type"] or "") if owner_name else ""
    answer = await services.forwarder.forward(
        CREATE_DELEGATION_TOKEN,
        admin_pb2.CreateDelegationTokenRequest(
            context=context.for_controller("CreateDelegationToken", _NO_DEADLINE),
            owner=str(owner),
            renewers=map(_principal, request["renewers"]),
            max_lifetime_ms=request["max_lifetime"],
        ),
        api_version=context.version,
    )
    made = answer.HasField("token")
    token = answer.token if made else _refused(str(owner or context.principal), context)
    values = {**_token(token), "hmac": answer.hmac, "error_code": answer.error_code}
    return _answer(values)


async def renew_delegation_token(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    answer = await services.forwarder.forward(
        RENEW_DELEGATION_TOKEN,
        admin_pb2.RenewDelegationTokenRequest(
            context=context.for_controller("RenewDelegationToken", _NO_DEADLINE),
            hmac=bytes(request["hmac"]),
            renew_period_ms=request["renew_period"],
        ),
        api_version=context.version,
    )
    values = {"error_code": answer.error_code, "expiry_timestamp": answer.expiry_ms}
    return _answer(values)


async def expire_delegation_token(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    answer = await services.forwarder.forward(
        EXPIRE_DELEGATION_TOKEN,
        admin_pb2.ExpireDelegationTokenRequest(
            context=context.for_controller("ExpireDelegationToken", _NO_DEADLINE),
            hmac=bytes(request["hmac"]),
            expiry_time_period_ms=request["expiry_time_period"],
        ),
        api_version=context.version,
    )
    values = {"error_code": answer.error_code, "expiry_timestamp": answer.expiry_ms}
    return _answer(values)


async def describe_delegation_token(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    owners = request["owners"]
    answer = await services.turns.carry_out(
        services.tokens.describe(
            admin_pb2.DescribeDelegationTokensRequest(
                context=context.for_controller("DescribeDelegationToken", _NO_DEADLINE),
                owners=map(_principal, owners or ()),
            )
        )
    )
    await AnswerPrice(services, context).add(len(answer.tokens))
    of_nobody = owners is not None and not owners
    tokens = () if of_nobody else answer.tokens
    values = {
        "error_code": answer.error_code,
        "tokens": [_token(one) async for one in services.turns.through(tokens)],
    }
    return _answer(values)


def _answer(values: Message) -> Message:
    return {"throttle_time": 0, **values}


def _refused(owner: str, context: RequestContext) -> admin_pb2.DelegationToken:
    """Return the token in an answer to a refused request."""
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
