"""Groups and transactional ids come to no state that their diagrams exclude; else they stop."""

from typing import Any

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.state.group_basis import GroupState
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
)
from quorate.broker.coordinator.transactions.transaction_states import KnownTransactionalId
from quorate.common.invariants import BrokenInvariant
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.memory_log import Led, Place, join_alone, joining
from tests.unit.coordinator.transaction_world import MINUTE_MS, StateLogOfEpoch, World

State = TransactionState


def _metadata(state: State, epoch: int = 3, producer_id: int = 7) -> TransactionMetadata:
    return TransactionMetadata(producer_id, epoch, 1_000, state, frozenset(), 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (State.PREPARE_COMMIT, State.COMPLETE_ABORT),
        (State.PREPARE_ABORT, State.COMPLETE_COMMIT),
        (State.PREPARE_COMMIT, State.ONGOING),
        (State.PREPARE_COMMIT, State.PREPARE_ABORT),
        (State.COMPLETE_COMMIT, State.PREPARE_COMMIT),
        (State.EMPTY, State.PREPARE_ABORT),
        (State.ONGOING, State.EMPTY),
    ],
)
def test_a_decided_transaction_changes_no_more(before: State, after: State) -> None:
    known = KnownTransactionalId("pay", _metadata(before))
    with pytest.raises(BrokenInvariant, match="transactional id pay"):
        known.become(_metadata(after))
    assert known.transaction == _metadata(before)


def test_the_epoch_of_a_producer_id_never_falls() -> None:
    known = KnownTransactionalId("pay", _metadata(State.EMPTY, epoch=3))
    with pytest.raises(BrokenInvariant, match="epochs never fall"):
        known.become(_metadata(State.EMPTY, epoch=2))
    known.become(_metadata(State.EMPTY, epoch=0, producer_id=8))


async def test_a_coordinator_whose_transaction_breaks_an_invariant_gives_its_log_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_up: list[BrokenInvariant] = []
    monkeypatch.setattr(StateLogOfEpoch, "give_up", lambda _, broken: given_up.append(broken))
    world = World()
    shard = await world.lead()
    producer = await shard.init_producer("pay", MINUTE_MS, None)
    known = shard._states.get("pay")
    assert known is not None
    known.transaction = _metadata(State.PREPARE_ABORT, producer.epoch, producer.producer_id)
    shard._states.write(known, _metadata(State.ONGOING, producer.epoch, producer.producer_id))
    await pass_time(1)
    (broken,) = given_up
    assert "transactional id pay" in str(broken)


@pytest.mark.parametrize(
    ("state", "generation_id"),
    [
        (GroupState.COMPLETING_REBALANCE, 2),
        (GroupState.STABLE, 1),
        (GroupState.PREPARING_REBALANCE, 0),
    ],
)
async def test_a_group_comes_to_no_state_out_of_order(
    state: GroupState, generation_id: int
) -> None:
    shard = await Place().lead()
    await join_alone(shard)
    group: Any = shard.group("g")
    assert (group.state, group.generation_id) == (GroupState.STABLE, 1)
    with pytest.raises(BrokenInvariant, match="group g"):
        group._enter(state, generation_id)
    assert (group.state, group.generation_id) == (GroupState.STABLE, 1)


async def test_a_coordinator_whose_group_breaks_an_invariant_gives_its_log_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_up: list[BrokenInvariant] = []
    monkeypatch.setattr(Led, "give_up", lambda _, broken: given_up.append(broken))
    shard = await Place().lead()
    await join_alone(shard)
    group: Any = shard.group("g")

    def broken(*_: object) -> None:
        group._enter(GroupState.COMPLETING_REBALANCE, 0)

    monkeypatch.setattr(group, "join", broken)
    with pytest.raises(KafkaError) as refused:
        await shard.join("g", joining())
    assert refused.value.code == errors_pb2.NOT_COORDINATOR
    assert len(given_up) == 1
