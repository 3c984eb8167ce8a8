"""The topics on which a client may perform an operation, looked up in slices if there are many."""

from collections.abc import Collection
from typing import Final

from quorate.broker.kafka.services import KafkaServices
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation

_FEW: Final = 64


async def allowed_topics(
    services: KafkaServices,
    rights: Rights,
    operation: AclOperation,
    names: Collection[str],
    *,
    log_denied: bool = True,
) -> frozenset[str]:
    """Return the ``names`` on which the operation is allowed, like ``Rights.topics``. Each decision
    takes time, and each refusal that is logged takes more.
    """
    if len(names) <= _FEW:
        return rights.topics(operation, names, log_denied=log_denied)
    distinct = tuple(dict.fromkeys(names))
    return frozenset(
        [
            name
            async for name in services.turns.through(distinct)
            if rights.may_topic(operation, name, log_denied=log_denied)
        ]
    )
