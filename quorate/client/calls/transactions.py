"""Transactions: which there are, which hang, and how one is aborted.

Each broker knows its own part alone: the transactions that it coordinates, the partitions that it
leads. So all of them are asked, and one that does not answer is an error: what it did not say might
be the very thing that was looked for.
"""

from collections.abc import Sequence
from typing import Any

from quorate.client.calls.cluster import cluster_status
from quorate.client.errors import ClusterUnreachable, RequestFailed
from quorate.client.results.partitions import PartitionName
from quorate.client.results.transactions import PartitionProducer, Transaction
from quorate.client.steps import Steps, ToEachBroker
from quorate_proto.v1 import admin_pb2, errors_pb2

_ELSEWHERE = frozenset(
    {
        errors_pb2.NOT_COORDINATOR,
        errors_pb2.COORDINATOR_NOT_AVAILABLE,
        errors_pb2.NOT_LEADER_OR_FOLLOWER,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""What brokers say that have nothing to do with it."""


def list_transactions(
    *,
    transactional_ids: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    states: Sequence[str] = (),
    open_for_ms: int = 0,
) -> Steps[list[Transaction]]:
    """Those that fit all that is given, by their names. ``open_for_ms``: for longer than that.

    Raises:
        ClusterUnreachable: a broker did not answer.
        RequestFailed: transactions have no coordinator now, or there is no such state.
    """
    request = admin_pb2.ListTransactionsRequest(
        transactional_ids=transactional_ids,
        producer_ids=producer_ids,
        states=states,
        open_for_ms=open_for_ms,
    )
    found, _ = yield from _listed(request)
    return found


def _listed(request: admin_pb2.ListTransactionsRequest) -> Steps[tuple[list[Transaction], int]]:
    """And how many more there are that may not be seen."""
    answers = yield from _ask_all("ListTransactions", request)
    found = [
        Transaction.from_proto(broker_id, one)
        for broker_id, answer in answers.items()
        for one in _checked(answer).transactions
    ]
    count = max((answer.partition_count for answer in answers.values()), default=0)
    coordinated = {one for answer in answers.values() for one in answer.coordinated}
    missing = sorted(set(range(count)) - coordinated)
    if missing:
        raise RequestFailed(
            errors_pb2.COORDINATOR_NOT_AVAILABLE,
            f"partitions {', '.join(map(str, missing))} of __transaction_state have no coordinator "
            "that can tell now: try again, or see `quorate status`",
        )
    hidden = sum(answer.hidden for answer in answers.values())
    return sorted(found, key=lambda one: one.transactional_id), hidden


def describe_producers(
    topic: str = "", partitions: Sequence[int] = (), *, with_open_transaction: bool = False
) -> Steps[list[PartitionProducer]]:
    """Of a topic, or of all; by partition, those with an open transaction first.

    Raises:
        ClusterUnreachable: a broker did not answer.
        RequestFailed: not allowed.
    """
    request = admin_pb2.DescribeProducersRequest(
        topic=topic, partitions=partitions, with_open_transaction=with_open_transaction
    )
    answers = yield from _ask_all("DescribeProducers", request)
    found = [
        PartitionProducer.from_proto(broker_id, one)
        for broker_id, answer in answers.items()
        for one in _checked(answer).producers
    ]
    return sorted(found, key=lambda one: (one.topic, one.partition))


def find_hanging_transactions(
    topic: str = "", partitions: Sequence[int] = ()
) -> Steps[list[PartitionProducer]]:
    """Transactions that are open in a partition, and that nobody will ever end there.

    A coordinator lets go of a transaction once its markers are in all of its partitions. So a
    transaction is hanging if it was open before its coordinator was asked, which knows nothing of
    the partition being part of it, and is the same one afterwards. No age is needed to tell.

    Raises:
        ClusterUnreachable: a broker did not answer.
        RequestFailed: as ``list_transactions``; or some of them may not be described.
    """
    suspects = yield from describe_producers(topic, partitions, with_open_transaction=True)
    if not suspects:
        return []
    ids = sorted({suspect.producer_id for suspect in suspects})
    known, hidden = yield from _listed(admin_pb2.ListTransactionsRequest(producer_ids=ids))
    if hidden:
        raise RequestFailed(
            errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"{hidden} of the open transactions may not be described: which of them hang cannot "
            "be told without DESCRIBE on all transactional ids",
        )
    looked_after = {(one.producer_id, name) for one in known for name in one.partitions}
    suspects = [one for one in suspects if (one.producer_id, one.name) not in looked_after]
    if not suspects:
        return []
    again = yield from describe_producers(topic, partitions, with_open_transaction=True)
    before = {_transaction_of(suspect) for suspect in suspects}
    return [one for one in again if _transaction_of(one) in before]


def _transaction_of(producer: PartitionProducer) -> tuple[PartitionName, int, int | None]:
    return producer.name, producer.producer_id, producer.transaction_start_offset


def abort_transaction(transactional_id: str) -> Steps[tuple[int, int]]:
    """Have its coordinator abort it, and fence its producer; that producer's id and epoch.

    Raises:
        ClusterUnreachable: a broker did not answer, and no other coordinates it.
        RequestFailed: there is no such transactional id, or it is not open.
    """
    request = admin_pb2.AbortTransactionRequest(transactional_id=transactional_id)
    return (yield from _abort(request, f"transactional id {transactional_id!r}"))


def abort_hanging_transaction(
    topic: str, partition: int, start_offset: int
) -> Steps[tuple[int, int]]:
    """Have the partition's leader end, without its coordinator, the transaction that began there.

    Its producer's id and epoch.

    Raises:
        ClusterUnreachable: a broker did not answer, and no other leads it.
        RequestFailed: no transaction that is open began there.
    """
    request = admin_pb2.AbortTransactionRequest(
        topic=topic, partition=partition, start_offset=start_offset
    )
    return (yield from _abort(request, f"{topic}-{partition}"))


def _abort(request: admin_pb2.AbortTransactionRequest, what: str) -> Steps[tuple[int, int]]:
    """All are asked; the one that has it carries it out."""
    answers, silent = yield from _ask_each("AbortTransaction", request)
    for answer in answers.values():
        if answer.error_code == errors_pb2.NONE:
            return answer.producer_id, answer.producer_epoch
    refusals = [one for one in answers.values() if one.error_code not in _ELSEWHERE]
    if refusals:
        _checked(refusals[0])
    if silent:
        raise ClusterUnreachable(f"{what}: no broker that answers has it; {', '.join(silent)}")
    said = [one for one in answers.values() if one.error_code != errors_pb2.NOT_COORDINATOR]
    _checked((said or list(answers.values()))[0])
    raise AssertionError("an answer without an error was returned above")


def _ask_all(rpc: str, request: Any) -> Steps[dict[int, Any]]:  # noqa: ANN401 - any message
    """Broker id → answer, of every live broker.

    Raises:
        ClusterUnreachable: one of them did not answer.
    """
    answers, silent = yield from _ask_each(rpc, request)
    if silent:
        raise ClusterUnreachable(f"{rpc}: {', '.join(silent)}; without them there may be more")
    return answers


def _ask_each(rpc: str, request: Any) -> Steps[tuple[dict[int, Any], list[str]]]:  # noqa: ANN401 - as above
    status = yield from cluster_status()
    brokers = {broker.grpc: broker.id for broker in status.brokers}
    answers = yield ToEachBroker(list(brokers), rpc, request)
    silent = [
        f"broker {brokers[address]} does not answer at {address}"
        for address, answer in answers.items()
        if answer is None
    ]
    given = {brokers[address]: answer for address, answer in answers.items() if answer is not None}
    return given, silent


def _checked(answer: Any) -> Any:  # noqa: ANN401 - any answer with an error code
    if answer.error_code != errors_pb2.NONE:
        raise RequestFailed(answer.error_code, answer.error_message)
    return answer
