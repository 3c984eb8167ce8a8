"""Lists and aborts transactions, and finds those that hang.

Each broker knows only its own part: the transactions that it coordinates and the partitions that it
leads. Therefore all brokers are asked, and it is an error if one does not answer: the missing
answer might contain exactly the transaction that was looked for.
"""

from collections.abc import Sequence
from typing import Any

from quorate.client.call_steps import Steps, ToAllBrokers
from quorate.client.calls.cluster_calls import cluster_status
from quorate.client.errors import ClusterUnreachable, RequestFailed
from quorate.client.results.partition_results import PartitionName
from quorate.client.results.transaction_results import PartitionProducer, Transaction
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
"""Answers of brokers that have nothing to do with the transaction."""


def list_transactions(
    *,
    transactional_ids: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    states: Sequence[str] = (),
    open_for_ms: int = 0,
) -> Steps[list[Transaction]]:
    """Return the transactions that match all arguments, sorted by transactional id.

    ``open_for_ms`` selects those that have been open for longer than that.

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
    """Return the transactions, and the number of those that the client may not see."""
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
    """Return the producers of a topic, or of all topics.

    They are sorted by partition; those with an open transaction come first.

    Raises:
        ClusterUnreachable: a broker did not answer.
        RequestFailed: the client is not authorized.
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
    """Return transactions that are open in a partition and that no coordinator will ever end there.

    A coordinator releases a transaction only when its markers are in all of its partitions. So a
    transaction hangs if it was open before its coordinator was asked, the coordinator does not know
    that the partition is part of it, and the transaction is still the same one afterwards. Its age
    does not matter.

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
    """Have the coordinator abort the transaction and fence its producer; return producer id and
    epoch.

    Raises:
        ClusterUnreachable: a broker did not answer, and no other coordinates it.
        RequestFailed: there is no such transactional id, or it is not open.
    """
    request = admin_pb2.AbortTransactionRequest(transactional_id=transactional_id)
    return (yield from _abort(request, f"transactional id {transactional_id!r}"))


def abort_hanging_transaction(
    topic: str, partition: int, start_offset: int
) -> Steps[tuple[int, int]]:
    """Have the partition's leader end the transaction that began there, without its coordinator.

    Return the id and the epoch of its producer.

    Raises:
        ClusterUnreachable: a broker did not answer, and no other leads the partition.
        RequestFailed: no transaction that is open began there.
    """
    request = admin_pb2.AbortTransactionRequest(
        topic=topic, partition=partition, start_offset=start_offset
    )
    return (yield from _abort(request, f"{topic}-{partition}"))


def _abort(request: admin_pb2.AbortTransactionRequest, what: str) -> Steps[tuple[int, int]]:
    """Send the request to all brokers; the one that has the transaction carries it out."""
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
    """Return the answers of all live brokers, by broker id.

    Raises:
        ClusterUnreachable: a broker did not answer.
    """
    answers, silent = yield from _ask_each(rpc, request)
    if silent:
        raise ClusterUnreachable(f"{rpc}: {', '.join(silent)}; without them there may be more")
    return answers


def _ask_each(rpc: str, request: Any) -> Steps[tuple[dict[int, Any], list[str]]]:  # noqa: ANN401 - as above
    status = yield from cluster_status()
    brokers = {broker.grpc: broker.id for broker in status.brokers}
    answers = yield ToAllBrokers(list(brokers), rpc, request)
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
