"""What each request makes of a transactional id, in each of its states."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.coordinator.shards.coordinator_records import UnknownRecord
from quorate.broker.coordinator.transactions.state import transaction_decisions as decisions
from quorate.broker.coordinator.transactions.state import transaction_log_format as log_format
from quorate.broker.coordinator.transactions.state.transaction_decisions import (
    Done,
    NeedsProducerId,
    Refused,
    Write,
)
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    LAST_EPOCH,
    ProducerEpoch,
    TransactionMetadata,
    TransactionState,
)
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

State = TransactionState
TP = TopicPartition("orders", 0)
OTHER = TopicPartition("payments", 3)
ONE, BOTH = frozenset({TP}), frozenset({TP, OTHER})
NOW_MS = 1_000_000
OWN = ProducerEpoch(7, 4)
ONGOING = TransactionMetadata(7, 4, 60_000, State.ONGOING, frozenset({TP}), NOW_MS, NOW_MS)
COMMIT = ONGOING._replace(state=State.PREPARE_COMMIT)
ABORT = ONGOING._replace(state=State.PREPARE_ABORT)
COMMITTED = ONGOING._replace(state=State.COMPLETE_COMMIT, partitions=frozenset())
ABORTED = ONGOING._replace(state=State.COMPLETE_ABORT, partitions=frozenset())
EMPTY = ABORTED._replace(state=State.EMPTY, started_ms=-1)
AT_REST = (EMPTY, COMMITTED, ABORTED)

MAPPING = Refused(errors_pb2.INVALID_PRODUCER_ID_MAPPING)
FENCED = Refused(errors_pb2.PRODUCER_FENCED)
CONCURRENT = Refused(errors_pb2.CONCURRENT_TRANSACTIONS)
INVALID_STATE = Refused(errors_pb2.INVALID_TXN_STATE)


def init(
    found: TransactionMetadata | None,
    expected: ProducerEpoch | None = None,
    new_producer_id: int | None = None,
) -> decisions.Decision | NeedsProducerId:
    return decisions.init_producer(found, expected, 30_000, NOW_MS + 5, new_producer_id)


def written(decision: object, code: int = errors_pb2.NONE) -> TransactionMetadata:
    assert isinstance(decision, Write), decision
    assert decision.code == code
    return decision.transaction


# -- coming up -------------------------------------------------------------------------------------


def test_a_new_transactional_id_gets_a_producer_id_of_its_own() -> None:
    assert init(None) == NeedsProducerId()
    new = written(init(None, new_producer_id=12))
    assert (new.producer_id, new.epoch, new.state) == (12, 0, State.EMPTY)
    assert (new.timeout_ms, new.updated_ms) == (30_000, NOW_MS + 5)


@pytest.mark.parametrize("found", AT_REST, ids=lambda found: found.state.title)
def test_whoever_comes_up_next_has_the_next_epoch(found: TransactionMetadata) -> None:
    new = written(init(found))
    assert (new.producer_id, new.epoch, new.state) == (7, 5, State.EMPTY)


@pytest.mark.parametrize("found", [COMMIT, ABORT], ids=lambda found: found.state.title)
def test_what_is_decided_is_completed_before_a_producer_comes_up(
    found: TransactionMetadata,
) -> None:
    assert init(found) == CONCURRENT


def test_what_the_producer_before_left_open_is_aborted_in_a_newer_epoch() -> None:
    fenced = written(init(ONGOING), errors_pb2.CONCURRENT_TRANSACTIONS)
    assert (fenced.state, fenced.epoch, fenced.partitions) == (State.PREPARE_ABORT, 5, ONE)
    assert decisions.end(fenced, OWN, NOW_MS, commit=True) == FENCED


def test_used_up_epochs_take_a_new_producer_id() -> None:
    last = EMPTY._replace(epoch=LAST_EPOCH - 1)
    assert init(last) == NeedsProducerId()
    new = written(init(last, new_producer_id=12))
    assert (new.producer_id, new.epoch, new.previous_producer_id) == (12, 0, 7)
    fenced = written(
        init(ONGOING._replace(epoch=LAST_EPOCH - 1)), errors_pb2.CONCURRENT_TRANSACTIONS
    )
    assert fenced.epoch == LAST_EPOCH


def test_kip_360_a_producer_that_recovers_gets_its_next_epoch_once() -> None:
    new = written(init(EMPTY, OWN))
    assert (new.epoch, new.last_epoch) == (5, 4)
    assert written(init(new, OWN)).epoch == 5, "the answer got lost"
    assert init(new, ProducerEpoch(7, 3)) == FENCED
    assert init(new, ProducerEpoch(8, 5)) == FENCED


def test_kip_360_who_was_replaced_cannot_recover() -> None:
    replaced = written(init(EMPTY))
    assert init(replaced, OWN) == FENCED
    ongoing = ONGOING._replace(epoch=5)
    assert init(ongoing, OWN) == FENCED, "nor end what the newer one does"


def test_kip_360_a_producer_recovers_from_its_own_open_transaction() -> None:
    fenced = written(init(ONGOING, OWN), errors_pb2.CONCURRENT_TRANSACTIONS)
    aborted = decisions.complete(fenced, NOW_MS).transaction
    assert written(init(aborted, OWN)).epoch == 5


def test_kip_360_recovering_with_the_last_epoch_takes_a_new_producer_id() -> None:
    own = ProducerEpoch(7, LAST_EPOCH - 1)
    last = EMPTY._replace(epoch=own.epoch)
    new = written(init(last, own, new_producer_id=12))
    assert (new.producer_id, new.epoch) == (12, 0)
    assert written(init(new, own)).producer_id == 12, "the answer got lost"
    fenced = written(
        init(ONGOING._replace(epoch=own.epoch), own), errors_pb2.CONCURRENT_TRANSACTIONS
    )
    aborted = decisions.complete(fenced, NOW_MS).transaction
    assert written(init(aborted, own, new_producer_id=13)).producer_id == 13, "not the last epoch"


# -- adding and ending -----------------------------------------------------------------------------


@pytest.mark.parametrize("found", AT_REST, ids=lambda found: found.state.title)
def test_the_first_partition_begins_a_transaction(found: TransactionMetadata) -> None:
    new = written(decisions.add_partitions(found, OWN, {TP}, NOW_MS + 9))
    assert (new.state, new.partitions, new.started_ms) == (State.ONGOING, ONE, NOW_MS + 9)


def test_more_partitions_join_the_transaction() -> None:
    new = written(decisions.add_partitions(ONGOING, OWN, {TP, OTHER}, NOW_MS + 9))
    assert (new.partitions, new.started_ms) == (BOTH, NOW_MS)
    assert decisions.add_partitions(new, OWN, {OTHER}, NOW_MS) == Done(new)


@pytest.mark.parametrize("found", [COMMIT, ABORT], ids=lambda found: found.state.title)
def test_nothing_is_added_to_what_is_decided(found: TransactionMetadata) -> None:
    assert decisions.add_partitions(found, OWN, {TP}, NOW_MS) == CONCURRENT


@pytest.mark.parametrize("found", [None, *AT_REST, ONGOING, COMMIT, ABORT])
def test_strangers_are_told_so_in_every_state(found: TransactionMetadata | None) -> None:
    other, older, newer = ProducerEpoch(8, 4), ProducerEpoch(7, 3), ProducerEpoch(7, 5)
    for who in (other, older, newer):
        refused = MAPPING if found is None or who is other else FENCED
        assert decisions.add_partitions(found, who, {TP}, NOW_MS) == refused
        for commit in (True, False):
            assert decisions.end(found, who, NOW_MS, commit=commit) == refused
        assert decisions.verify(found, who, {TP}) == {TP: refused.code}


ENDINGS = [
    (EMPTY, INVALID_STATE, INVALID_STATE),
    (COMMIT, CONCURRENT, INVALID_STATE),
    (ABORT, INVALID_STATE, CONCURRENT),
    (COMMITTED, Done(COMMITTED), INVALID_STATE),
    (ABORTED, INVALID_STATE, Done(ABORTED)),
]


@pytest.mark.parametrize(("found", "commit", "abort"), ENDINGS)
def test_what_is_decided_stays_decided(
    found: TransactionMetadata, commit: decisions.Decision, abort: decisions.Decision
) -> None:
    assert decisions.end(found, OWN, NOW_MS, commit=True) == commit
    assert decisions.end(found, OWN, NOW_MS, commit=False) == abort


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_is_ended_as_its_producer_says(commit: bool) -> None:
    prepared = written(decisions.end(ONGOING, OWN, NOW_MS + 9, commit=commit))
    assert (prepared.is_commit, prepared.epoch, prepared.partitions) == (commit, 4, ONE)
    done = decisions.complete(prepared, NOW_MS + 10).transaction
    assert done.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert (done.partitions, done.updated_ms) == (frozenset[TopicPartition](), NOW_MS + 10)


def test_only_what_is_decided_can_be_completed() -> None:
    with pytest.raises(AssertionError, match="Ongoing"):
        decisions.complete(ONGOING, NOW_MS)


def test_kip_890_a_partition_is_verified_while_its_transaction_is_open() -> None:
    codes = decisions.verify(ONGOING, OWN, {TP, OTHER})
    assert codes == {TP: 0, OTHER: errors_pb2.TRANSACTION_ABORTABLE}
    assert decisions.verify(COMMIT, OWN, {TP}) == {TP: errors_pb2.CONCURRENT_TRANSACTIONS}
    assert decisions.verify(COMMITTED, OWN, {TP}) == {TP: errors_pb2.TRANSACTION_ABORTABLE}


# -- time ------------------------------------------------------------------------------------------


def test_what_is_open_for_too_long_is_aborted_and_its_producer_fenced() -> None:
    assert decisions.time_out(ONGOING, NOW_MS + 60_000) == INVALID_STATE
    fenced = written(decisions.time_out(ONGOING, NOW_MS + 60_001))
    assert (fenced.state, fenced.epoch) == (State.PREPARE_ABORT, 5)
    for found in (*AT_REST, COMMIT, ABORT):
        assert decisions.time_out(found, NOW_MS + 10**9) == INVALID_STATE


def test_ids_at_rest_are_forgotten_in_the_end() -> None:
    for found in AT_REST:
        assert not decisions.is_expired(found, 1_000, NOW_MS + 999)
        assert decisions.is_expired(found, 1_000, NOW_MS + 1_000)
    for found in (ONGOING, COMMIT, ABORT):
        assert not decisions.is_expired(found, 1_000, NOW_MS + 10**9)


# -- in the log ------------------------------------------------------------------------------------


def test_bytes_of_a_transaction_are_kafkas() -> None:
    assert log_format.encode_key("tx") == b"\0\0\0\x02tx"
    both = ONGOING._replace(partitions=frozenset({TP, OTHER}))
    value = log_format.encode(both, log_format.PLAIN)
    assert (
        value
        == bytes.fromhex(
            "0000"  # version
            "0000000000000007"  # producer id
            "0004"  # epoch
            "0000ea60"  # timeout
            "01"  # Ongoing
            "00000002"
            "0006" + b"orders".hex() + "0000000100000000"
            "0008" + b"payments".hex() + "0000000100000003"
            "00000000000f4240"  # last update
            "00000000000f4240"  # start
        )
    )
    empty = log_format.encode(EMPTY, log_format.PLAIN)
    assert empty[17:21] == b"\xff\xff\xff\xff", "no partitions: null"


def test_bytes_with_tagged_fields_are_kafkas() -> None:
    value = log_format.encode(
        ONGOING._replace(
            partitions=frozenset({TP, OTHER}),
            previous_producer_id=5,
            next_producer_id=9,
            client_version=2,
        ),
    )
    assert (
        value
        == bytes.fromhex(
            "0001"  # version
            "0000000000000007"  # producer id
            "0004"  # epoch
            "0000ea60"  # timeout
            "01"  # Ongoing
            "03"
            "07" + b"orders".hex() + "020000000000"
            "09" + b"payments".hex() + "020000000300"
            "00000000000f4240"  # last update
            "00000000000f4240"  # start
            "03"
            "00080000000000000005"  # previous producer id
            "01080000000000000009"  # next producer id
            "02020002"  # transaction.version of the client
        )
    )
    assert log_format.encode(EMPTY)[17:] == bytes.fromhex(
        "00 00000000000f4240 ffffffffffffffff 00"
    ), "no partitions: null"


def test_tagged_fields_of_newer_releases_are_passed_over() -> None:
    newer = log_format.encode(ONGOING)[:-1] + bytes.fromhex("01 03 02 0004")
    assert log_format.decode(newer) == ONGOING


STATES = st.sampled_from([state for state in State if state <= State.COMPLETE_ABORT])
PARTITIONS = st.builds(TopicPartition, st.text("ab", min_size=1), st.integers(0, 50))
INT64 = st.integers(-1, 2**63 - 1)


@given(
    st.text(),
    st.builds(
        TransactionMetadata,
        INT64,
        st.integers(-1, LAST_EPOCH),
        st.integers(1, 2**31 - 1),
        STATES,
        st.frozensets(PARTITIONS),
        INT64,
        INT64,
        last_epoch=st.just(-1),
        previous_producer_id=INT64,
        next_producer_id=INT64,
        client_version=st.integers(0, 2),
    ),
)
def test_what_is_written_is_read_again(
    transactional_id: str, transaction: TransactionMetadata
) -> None:
    if transaction.state is State.EMPTY:
        transaction = transaction._replace(partitions=frozenset())
    assert log_format.decode(log_format.encode(transaction)) == transaction
    assert log_format.decode_key(log_format.encode_key(transactional_id)) == transactional_id


@pytest.mark.parametrize("cut", [0, 1, 9, 17, 30])
def test_records_that_are_cut_off_are_named(cut: int) -> None:
    with pytest.raises(UnknownRecord):
        log_format.decode(log_format.encode(ONGOING)[:cut])


@pytest.mark.parametrize("value", [b"\0\x09", log_format.encode(EMPTY)[:16] + b"\x63" + bytes(20)])
def test_records_of_other_releases_are_named(value: bytes) -> None:
    with pytest.raises(UnknownRecord, match=r"version 9|state 99"):
        log_format.decode(value)
    with pytest.raises(UnknownRecord, match="key of version 9"):
        log_format.decode_key(b"\0\x09")


def test_states_have_kafkas_names() -> None:
    assert [state.title for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
