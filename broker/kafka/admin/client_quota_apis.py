"""The APIs DescribeClientQuotas (48) and AlterClientQuotas (49)."""

from collections.abc import Iterable
from typing import Final

from quorate.broker.changes.table import ALTER_CLIENT_QUOTAS
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.quota.quota_description import describe
from quorate.common.acl_types import AclOperation
from quorate_proto.v1 import admin_pb2

_NO_TIMEOUT: Final = 0
"""The timeout of these requests, which have none. The forwarder's default applies."""


async def describe_client_quotas(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    services.authorizer.rights_of(context).require_cluster(AclOperation.DESCRIBE_CONFIGS)
    steps = describe(
        services.images.image.client_quotas,
        admin_pb2.DescribeClientQuotasRequest(
            filters=[
                admin_pb2.QuotaFilter(
                    entity_type=one["entity_type"],
                    match_type=one["match_type"],
                    match=one["match"] or "",
                )
                for one in request["components"]
            ],
            strict=request["strict"],
        ),
    )
    answer = await services.turns.carry_out(steps)
    await AnswerPrice(services, context).add(len(answer.entries))
    entries = [_entry(entry) async for entry in services.turns.through(answer.entries)]
    return {
        "throttle_time": 0,
        "error_code": answer.error_code,
        "error_message": answer.error_message or None,
        "entries": None if answer.error_code else entries,
    }


def _entry(entry: admin_pb2.QuotaEntry) -> Message:
    values = sorted(entry.values.items())
    return {
        "entity": _entity(entry.entity),
        "values": [{"key": key, "value": value} for key, value in values],
    }


def _entity(parts: Iterable[admin_pb2.QuotaEntityPart]) -> list[Message]:
    return [
        {
            "entity_type": part.entity_type,
            "entity_name": part.name if part.HasField("name") else None,
        }
        for part in parts
    ]


async def alter_client_quotas(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    asked = admin_pb2.AlterClientQuotasRequest(
        context=context.for_controller("AlterClientQuotas", _NO_TIMEOUT),
        alterations=[_alteration(entry) for entry in request["entries"]],
        validate_only=request["validate_only"],
    )
    answer = await services.forwarder.forward(
        ALTER_CLIENT_QUOTAS, asked, api_version=context.version
    )
    if answer.error_code and not answer.results:
        answer = ALTER_CLIENT_QUOTAS.failed(asked, answer.error_code, "")
    values = {
        "throttle_time": 0,
        "entries": [
            {
                "error_code": result.error_code,
                "error_message": result.error_message or None,
                "entity": _entity(result.entity),
            }
            for result in answer.results
        ],
    }
    return values


def _alteration(entry: Message) -> admin_pb2.QuotaAlteration:
    return admin_pb2.QuotaAlteration(
        entity=[
            admin_pb2.QuotaEntityPart(entity_type=part["entity_type"], name=part["entity_name"])
            for part in entry["entity"]
        ],
        changes=[
            admin_pb2.QuotaChange(key=op["key"], value=None if op["remove"] else op["value"])
            for op in entry["ops"]
        ],
    )
