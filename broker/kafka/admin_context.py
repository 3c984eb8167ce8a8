"""Changes on their way from the Kafka wire to the controller: on whose behalf, and how (F2, F5)."""

from typing import Final

from broker.control.changes import A, Change, Q
from broker.kafka.requests import RequestContext
from broker.kafka.services import KafkaServices
from quorate_proto.v1 import admin_pb2

_NOT_FORWARDED: Final = -1


def admin_context(
    context: RequestContext, api_name: str, timeout_ms: int, *, accept_over_quota: bool = False
) -> admin_pb2.RequestContext:
    """The forwarded request's context; ``timeout_ms``: what is left of its deadline.

    ``accept_over_quota``: an old client, which would not understand its refusal (Q4).
    """
    return admin_pb2.RequestContext(
        principal_name=str(context.principal),
        client_host=context.client_host,
        client_id=context.client_id,
        timeout_ms=max(0, timeout_ms),
        forwarded_by=_NOT_FORWARDED,
        api_name=api_name,
        token_authenticated=context.principal.token_authenticated,
        accept_over_quota=accept_over_quota,
    )


async def ask_controller(
    services: KafkaServices, context: RequestContext, change: Change[Q, A], request: Q
) -> A:
    """What the controller answers; a version that is the controller's alone is not passed on (F2).

    NOT_CONTROLLER then stands in the answer as a whole and in each of its items.
    """
    proxied = context.version not in change.controller_only
    return await services.forwarder.carry_out(change, request, proxied=proxied)
