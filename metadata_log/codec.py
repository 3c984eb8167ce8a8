"""Wire form of transactions, conditions and results. That of records is in ``record_codec``."""

from google.protobuf.message import DecodeError

from metadata_log import records as r
from metadata_log.record_codec import MalformedTransaction, decode_record, encode_record
from metadata_log.types import ControllerEpoch, MetadataOffset, SessionId
from quorate_proto.v1 import metadata_pb2 as pb


def encode_transaction(transaction: r.Transaction) -> bytes:
    """The transaction as the command of one Raft entry."""
    return pb.Transaction(
        client_id=transaction.client_id,
        sequence=transaction.sequence,
        low_water=transaction.low_water,
        atomic=transaction.atomic,
        timestamp_ms=transaction.timestamp_ms,
        from_client=[True] if transaction.from_client else [],
        operations=[
            pb.Operation(
                conditions=[_encode_condition(c) for c in operation.conditions],
                records=[encode_record(record) for record in operation.records],
            )
            for operation in transaction.operations
        ],
    ).SerializeToString()


def decode_transaction(encoded: bytes) -> r.Transaction:
    """The transaction in ``encoded``.

    Raises:
        MalformedTransaction: not protobuf, or with a record or condition of an unknown kind.
    """
    try:
        message = pb.Transaction.FromString(encoded)
    except DecodeError as error:
        raise MalformedTransaction(f"{len(encoded)} bytes are no transaction: {error}") from error
    return r.Transaction(
        client_id=SessionId(message.client_id),
        sequence=message.sequence,
        low_water=message.low_water,
        atomic=message.atomic,
        timestamp_ms=message.timestamp_ms,
        from_client=bool(message.from_client),
        operations=tuple(
            r.Operation(
                conditions=tuple(_decode_condition(c) for c in operation.conditions),
                records=tuple(decode_record(record) for record in operation.records),
            )
            for operation in message.operations
        ),
    )


def result_to_proto(result: r.TransactionResult) -> pb.TransactionResult:
    return pb.TransactionResult(
        offset=result.offset,
        results=[
            pb.OperationResult(
                code=pb.ResultCode.Name(int(one.code)),  # type: ignore[arg-type]
                detail=one.detail,
                version=one.version,
            )
            for one in result.results
        ],
    )


def result_from_proto(message: pb.TransactionResult) -> r.TransactionResult:
    return r.TransactionResult(
        offset=MetadataOffset(message.offset),
        results=tuple(
            r.OperationResult(code=r.ResultCode(one.code), detail=one.detail, version=one.version)
            for one in message.results
        ),
    )


# --- conditions ---------------------------------------------------------------------------------


def _encode_condition(condition: r.Condition) -> pb.Condition:
    match condition:
        case r.ControllerEpochIs(controller_epoch=epoch):
            return pb.Condition(controller_epoch=epoch)
        case r.Absent(path=path):
            return pb.Condition(absent=path)
        case r.AtVersion(path=path, version=version):
            return pb.Condition(at_version=pb.PathVersion(path=path, version=version))
        case r.SessionAlive(session_id=session):
            return pb.Condition(session_alive=session)


def _decode_condition(message: pb.Condition) -> r.Condition:
    match message.WhichOneof("kind"):
        case "controller_epoch":
            epoch = ControllerEpoch(message.controller_epoch)
            return r.ControllerEpochIs(controller_epoch=epoch)
        case "absent":
            return r.Absent(path=message.absent)
        case "at_version":
            at = message.at_version
            return r.AtVersion(path=at.path, version=at.version)
        case "session_alive":
            return r.SessionAlive(session_id=SessionId(message.session_alive))
    raise MalformedTransaction("a condition of a kind this version does not know")
