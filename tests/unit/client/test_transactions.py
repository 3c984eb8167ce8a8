"""Which transactions hang, and who is asked to abort one."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from quorate.client.call_steps import Steps, ToAllBrokers, ToAnyBroker
from quorate.client.calls import transaction_calls as transactions
from quorate.client.errors import ClusterUnreachable, RequestFailed
from quorate.client.results import PartitionName
from quorate_proto.v1 import admin_pb2, errors_pb2, metadata_pb2, replication_pb2

R = TypeVar("R")
TP = PartitionName(topic="orders", partition=3)


def producer(start: int = 40, producer_id: int = 7) -> admin_pb2.ProducerListing:
    return admin_pb2.ProducerListing(
        topic=TP.topic,
        partition=TP.partition,
        producer_id=producer_id,
        producer_epoch=2,
        last_sequence=5,
        idle_ms=1_000,
        coordinator_epoch=-1,
        transaction_start_offset=start,
    )


def transaction(*names: PartitionName, producer_id: int = 7) -> admin_pb2.TransactionListing:
    return admin_pb2.TransactionListing(
        transactional_id="pay",
        producer_id=producer_id,
        producer_epoch=2,
        state="Ongoing",
        timeout_ms=60_000,
        open_ms=1_000,
        partitions=[
            admin_pb2.PartitionRef(topic=name.topic, partition=name.partition) for name in names
        ],
    )


class Cluster:
    """Two brokers: 1 leads partitions, 2 coordinates."""

    def __init__(self) -> None:
        self.open = [producer()]
        self.coordinated: list[admin_pb2.TransactionListing] = []
        self.coordinating = [0, 1]
        self.hidden = 0
        self.silent: set[int] = set()
        self.refusals: dict[tuple[str, int], int] = {}
        self.asked: list[tuple[str, int]] = []
        self.on_list: Callable[[], None] = lambda: None

    def run(self, steps: Steps[R]) -> R:
        answer: Any = None
        while True:
            try:
                question = steps.send(answer)
            except StopIteration as end:
                result: R = end.value
                return result
            if isinstance(question, ToAnyBroker):
                answer = self._status()
                continue
            assert isinstance(question, ToAllBrokers)
            answer = {
                address: self._answer(question.rpc, question.request, int(address[-1]))
                for address in question.addresses
            }

    def _status(self) -> admin_pb2.ClusterStatusResponse:
        return admin_pb2.ClusterStatusResponse(
            brokers=[
                replication_pb2.BrokerEndpoint(
                    broker_id=number, grpc=metadata_pb2.Endpoint(host="h", port=number)
                )
                for number in (1, 2)
            ]
        )

    def _answer(self, rpc: str, request: Any, broker: int) -> Any:  # noqa: ANN401 - any message
        self.asked.append((rpc, broker))
        if broker in self.silent:
            return None
        code = self.refusals.get((rpc, broker), 0)
        if rpc == "DescribeProducers":
            led = self.open if broker == 1 and not code else []
            return admin_pb2.DescribeProducersResponse(error_code=code, producers=led)
        if rpc == "ListTransactions":
            self.on_list()
            here = [
                one
                for one in self.coordinated
                if broker == 2 and one.producer_id in request.producer_ids
            ]
            return admin_pb2.ListTransactionsResponse(
                error_code=code,
                transactions=here,
                hidden=self.hidden if broker == 2 else 0,
                coordinated=self.coordinating if broker == 2 else [],
                partition_count=2,
            )
        assert rpc == "AbortTransaction"
        return admin_pb2.AbortTransactionResponse(
            error_code=code, error_message=f"broker {broker}", producer_id=7, producer_epoch=3
        )


def test_what_no_coordinator_looks_after_hangs() -> None:
    cluster = Cluster()
    (found,) = cluster.run(transactions.find_hanging_transactions())
    assert (found.name, found.transaction_start_offset, found.leader) == (TP, 40, 1)
    assert (found.coordinator_epoch, found.idle_ms) == (None, 1_000)


def test_what_a_coordinator_looks_after_does_not() -> None:
    cluster = Cluster()
    cluster.coordinated = [transaction(TP)]
    assert cluster.run(transactions.find_hanging_transactions()) == []
    cluster.coordinated = [transaction(PartitionName(topic="orders", partition=4))]
    assert len(cluster.run(transactions.find_hanging_transactions())) == 1
    cluster.coordinated = [transaction(TP, producer_id=8)]
    assert len(cluster.run(transactions.find_hanging_transactions())) == 1


@pytest.mark.parametrize("later", [[], [producer(start=44)]])
def test_one_that_ended_while_it_was_looked_for_does_not(
    later: list[admin_pb2.ProducerListing],
) -> None:
    """Its coordinator had let go of it because its markers were written."""
    cluster = Cluster()
    cluster.on_list = lambda: setattr(cluster, "open", later)
    assert cluster.run(transactions.find_hanging_transactions()) == []


def test_without_open_transactions_no_coordinator_is_asked() -> None:
    cluster = Cluster()
    cluster.open = []
    assert cluster.run(transactions.find_hanging_transactions("orders", [3])) == []
    assert {rpc for rpc, _ in cluster.asked} == {"DescribeProducers"}


@pytest.mark.parametrize("silent", [1, 2])
def test_while_a_broker_is_silent_nothing_is_said_to_hang(silent: int) -> None:
    cluster = Cluster()
    cluster.silent = {silent}
    with pytest.raises(ClusterUnreachable, match=f"broker {silent} does not answer at h:{silent}"):
        cluster.run(transactions.find_hanging_transactions())


def test_while_a_coordinator_is_missing_nothing_is_said_to_hang() -> None:
    """Its successor may not have been told yet, and the broker before it is not alive."""
    cluster = Cluster()
    cluster.coordinating = [1]
    with pytest.raises(RequestFailed, match="partitions 0 of __transaction_state have no coord"):
        cluster.run(transactions.find_hanging_transactions())


def test_whoever_may_not_see_all_transactions_is_not_told_that_they_hang() -> None:
    cluster = Cluster()
    cluster.hidden = 1
    with pytest.raises(RequestFailed, match="1 of the open transactions may not be described"):
        cluster.run(transactions.find_hanging_transactions())


def test_the_broker_that_has_it_aborts_it() -> None:
    cluster = Cluster()
    cluster.refusals["AbortTransaction", 1] = errors_pb2.NOT_COORDINATOR
    assert cluster.run(transactions.abort_transaction("pay")) == (7, 3)
    cluster.refusals = {("AbortTransaction", 2): errors_pb2.NOT_LEADER_OR_FOLLOWER}
    assert cluster.run(transactions.abort_hanging_transaction("orders", 3, 40)) == (7, 3)


def test_the_refusal_of_the_one_that_has_it_counts() -> None:
    cluster = Cluster()
    cluster.refusals = {
        ("AbortTransaction", 1): errors_pb2.NOT_COORDINATOR,
        ("AbortTransaction", 2): errors_pb2.INVALID_TXN_STATE,
    }
    with pytest.raises(RequestFailed, match="INVALID_TXN_STATE: broker 2"):
        cluster.run(transactions.abort_transaction("pay"))
    cluster.refusals["AbortTransaction", 2] = errors_pb2.TRANSACTIONAL_ID_NOT_FOUND
    with pytest.raises(RequestFailed, match="TRANSACTIONAL_ID_NOT_FOUND: broker 2"):
        cluster.run(transactions.abort_transaction("pay"))


def test_if_nobody_has_it_who_was_silent_may_have() -> None:
    cluster = Cluster()
    cluster.refusals["AbortTransaction", 1] = errors_pb2.NOT_COORDINATOR
    cluster.silent = {2}
    with pytest.raises(ClusterUnreachable, match="'pay': no broker that answers has it; broker 2"):
        cluster.run(transactions.abort_transaction("pay"))
