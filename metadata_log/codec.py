"""Wire form of transactions (MessagePack) and of results (protobuf).

A transaction is written once and read on every voter and broker, so its wire form is the one that
turns into our frozen values fastest: MessagePack, decoded straight into the classes of ``records``
with every type, range and tag checked. Two bytes stand in front: the format, and who wrote it. The
second is set by the voter that takes a transaction, so that a client cannot pass for the quorum.
"""

from typing import Final

import msgspec

from metadata_log.records import (
    Operation,
    OperationResult,
    ResultCode,
    Transaction,
    TransactionResult,
)
from metadata_log.types import MetadataOffset
from quorate_proto.v1 import metadata_pb2 as pb

FORMAT: Final = 1
_BY_QUORUM: Final = bytes([FORMAT, 0])
_BY_CLIENT: Final = bytes([FORMAT, 1])

_force: Final = msgspec.structs.force_setattr
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Transaction)


class MalformedTransaction(ValueError):
    """Bytes that are not a transaction this version understands."""


def encode_transaction(transaction: Transaction) -> bytes:
    """The transaction as the command of one Raft entry."""
    head = _BY_CLIENT if transaction.from_client else _BY_QUORUM
    return head + _ENCODER.encode(transaction)


def encoded_bytes(operation: Operation) -> int:
    """What the operation takes of its transaction's encoded size."""
    return len(_ENCODER.encode(operation))


def as_of_client(encoded: bytes) -> bytes:
    """The transaction that came from a client, whatever it said about its writer."""
    if encoded.startswith(_BY_CLIENT):
        return encoded
    return encoded[:1] + _BY_CLIENT[1:] + encoded[2:]


def decode_transaction(encoded: bytes) -> Transaction:
    """The transaction in ``encoded``.

    Raises:
        MalformedTransaction: not a transaction, or with a record or condition of an unknown kind.
    """
    by_client = encoded.startswith(_BY_CLIENT)
    if not by_client and not encoded.startswith(_BY_QUORUM):
        raise MalformedTransaction(_what_is_wrong_with(encoded[:2]))
    try:
        transaction = _DECODER.decode(encoded[2:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedTransaction(f"{len(encoded)} bytes are no transaction: {error}") from error
    if by_client and not transaction.from_client:
        _force(transaction, "from_client", True)  # Nobody else has seen it yet.
    return transaction


def _what_is_wrong_with(head: bytes) -> str:
    if len(head) < 2:
        return f"{len(head)} bytes are no transaction"
    if head[0] != FORMAT:
        return f"a transaction of format {head[0]}, this version reads {FORMAT}"
    return f"a transaction of writer {head[1]}, which this version does not know"


def result_to_proto(result: TransactionResult) -> pb.TransactionResult:
    return pb.TransactionResult(
        offset=result.offset,
        results=[
            pb.OperationResult(
                code=one.code.value,  # type: ignore[arg-type]  # The same numbers.
                detail=one.detail,
                version=one.version,
            )
            for one in result.results
        ],
    )


def result_from_proto(message: pb.TransactionResult) -> TransactionResult:
    return TransactionResult(
        offset=MetadataOffset(message.offset),
        results=tuple(
            OperationResult(code=ResultCode(one.code), detail=one.detail, version=one.version)
            for one in message.results
        ),
    )
