"""On whose behalf a change is forwarded to the controller (F5)."""

from typing import Final

from broker.kafka.requests import RequestContext
from quorate_proto.v1 import admin_pb2

_NOT_FORWARDED: Final = -1


def admin_context(
    context: RequestContext, api_name: str, timeout_ms: int
) -> admin_pb2.RequestContext:
    """The forwarded request's context; ``timeout_ms``: what is left of its deadline."""
    return admin_pb2.RequestContext(
        principal_name=str(context.principal),
        client_host=context.client_host,
        client_id=context.client_id,
        timeout_ms=max(0, timeout_ms),
        forwarded_by=_NOT_FORWARDED,
        api_name=api_name,
        token_authenticated=context.principal.token_authenticated,
    )
