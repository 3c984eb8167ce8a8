"""Describes and alters client quotas."""

from collections.abc import Sequence

from quorate.client.call_steps import Steps, ToAnyBroker, ToController
from quorate.client.errors import RequestFailed
from quorate.client.results import QuotaAlteration, QuotaEntry, QuotaFilter, QuotaResult
from quorate_proto.v1 import admin_pb2, errors_pb2


def alter_client_quotas(
    alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
) -> Steps[list[QuotaResult]]:
    """Set and remove quotas; return one result per entity, in order."""
    request = admin_pb2.AlterClientQuotasRequest(
        alterations=[one.to_proto() for one in alterations], validate_only=validate_only
    )
    answer: admin_pb2.AlterClientQuotasResponse = yield ToController(
        "AlterClientQuotas", request, "changing quotas"
    )
    return [QuotaResult.from_proto(result) for result in answer.results]


def describe_client_quotas(
    filters: Sequence[QuotaFilter] = (), *, strict: bool = False
) -> Steps[list[QuotaEntry]]:
    """Return the entities that match all filters, sorted.

    With ``strict``, entities that also have parts of other types are left out.

    Raises:
        RequestFailed: a filter is invalid.
    """
    request = admin_pb2.DescribeClientQuotasRequest(
        filters=[one.to_proto() for one in filters], strict=strict
    )
    answer: admin_pb2.DescribeClientQuotasResponse = yield ToAnyBroker(
        "DescribeClientQuotas", request
    )
    if answer.error_code != errors_pb2.NONE:
        raise RequestFailed(answer.error_code, answer.error_message)
    return [QuotaEntry.from_proto(entry) for entry in answer.entries]
