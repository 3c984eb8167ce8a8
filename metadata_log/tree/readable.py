"""Records and transactions as JSON, for people and scripts."""

from typing import Any

import msgspec

from quorate.common.types import Endpoint, MetadataOffset
from quorate.metadata_log.records import Transaction, TransactionResult, kind_of


def readable(value: object) -> Any:  # noqa: ANN401 - what ``json.dumps`` takes
    """Return fields by name, bytes in hexadecimal, endpoints as ``host:port``, and no secrets."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Endpoint):
        return str(value)
    if isinstance(value, msgspec.Struct):
        secrets = getattr(value, "SECRETS", ())
        shown = (name for name in value.__struct_fields__ if name not in secrets)
        return {name: readable(getattr(value, name)) for name in shown}
    if isinstance(value, tuple | list):
        return [readable(one) for one in value]
    return value


def readable_transaction(
    offset: MetadataOffset, transaction: Transaction, result: TransactionResult
) -> dict[str, Any]:
    """Return one transaction with the result of each of its operations.

    ``retry_of`` is the offset of the first attempt, whose result this is, or None: a retry changes
    nothing.
    """
    return {
        "offset": offset,
        "retry_of": None if result.offset == offset else result.offset,
        "client": transaction.client_id.hex() or None,
        "operations": [
            {
                "code": outcome.code.name,
                "detail": outcome.detail,
                "conditions": [{type(one).__name__: readable(one)} for one in operation.conditions],
                "records": [{kind_of(one): readable(one)} for one in operation.records],
            }
            for operation, outcome in zip(transaction.operations, result.results, strict=True)
        ],
    }
