"""A backup holds everything or is refused; a restored history repeats no number (P11, rule 7)."""

import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quorate.common.files.data_folder import claimed_data_folder
from quorate.common.types import MetadataOffset
from quorate.metadata_log.codec import encode_transaction
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import Operation, ProducerIdBlock, SessionOpened, Transaction
from quorate.metadata_log.snapshot.snapshot import decode_snapshot, encode_snapshot
from quorate.quorum.operations.backup import salvage_backup
from quorate.quorum.operations.backup_file import Backup, BackupHeader, read_backup, write_backup
from quorate.quorum.operations.restore import EPOCH_GAP, OFFSET_GAP, restore, restored_image
from quorate.quorum.quorum_config import QuorumConfig, quorum_config
from quorate.quorum.quorum_errors import BackupError
from quorate.quorum.raft.network.raft_frames import REGULAR
from quorate.quorum.raft.snapshot_store import SNAPSHOT_FILE
from quorate.quorum.raft.storage.lmdb_journal import JOURNAL_FILE, LmdbJournal
from quorate.quorum.raft.storage.snapshot_file import (
    SnapshotPosition,
    read_chunks,
    read_position,
    write_snapshot,
)
from tests.support.metadata import MetadataLogBuilder, quorum_voter, session_of

CLUSTER = "a-cluster"
TAKEN_AT_MS = 1_700_000_000_000


def image_of_a_cluster() -> Image:
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(2)
    log.create_topic("orders", (1, 2, 3), (2, 3, 1))
    log.write_as_controller(ProducerIdBlock(next_producer_id=1_000))
    return log.image


IMAGE = image_of_a_cluster()
TERM = 7
BACKUP = Backup(
    BackupHeader(cluster_id=CLUSTER, taken_at_ms=TAKEN_AT_MS, source="host1:7101"), TERM, IMAGE
)


def voter_config(folder: Path, **more: object) -> QuorumConfig:
    return quorum_config(
        {
            "node.id": 1,
            "cluster.id": CLUSTER,
            "data.dir": str(folder),
            "quorum.voters": "1@127.0.0.1:7001/7101,2@127.0.0.1:7002/7102",
            "security.protocol": "PLAINTEXT",
            **more,
        }
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "quorum.backup"
    write_backup(path, BACKUP)
    return path


# --- the file -----------------------------------------------------------------------------------


def test_a_backup_survives_its_file(path: Path) -> None:
    assert read_backup(path) == BACKUP


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 1, exclude_max=True))
def test_p11_a_truncated_backup_is_refused(path: Path, share: float) -> None:
    whole = path.read_bytes()
    cut = path.with_name("cut")
    cut.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(BackupError, match="damaged"):
        read_backup(cut)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_p11_a_backup_with_one_wrong_byte_is_refused(path: Path, at: float, flip: int) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= flip
    wrong = path.with_name("wrong")
    wrong.write_bytes(data)
    with pytest.raises(BackupError):
        read_backup(wrong)


def test_a_voters_own_snapshot_is_no_backup(tmp_path: Path) -> None:
    path = tmp_path / SNAPSHOT_FILE
    write_snapshot(path, SnapshotPosition(IMAGE.offset, 1), encode_snapshot(IMAGE))
    with pytest.raises(BackupError, match="own snapshot"):
        read_backup(path)


def test_a_backup_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "later"
    header = msgspec.structs.replace(BACKUP.header, quorum_backup=2)
    write_backup(path, BACKUP._replace(header=header))
    with pytest.raises(BackupError, match="format 2"):
        read_backup(path)


def test_a_backup_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "not there" / "backup"
    with pytest.raises(BackupError, match=r"cannot write .*backup: No such file.*another folder"):
        write_backup(path, BACKUP)


def test_an_absent_backup_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match=r"nothing\.backup: No such file"):
        read_backup(tmp_path / "nothing.backup")


# --- restoring ----------------------------------------------------------------------------------


def test_rule_7_a_restored_history_repeats_no_number_of_the_lost_one() -> None:
    offset = IMAGE.offset + OFFSET_GAP
    restored = restored_image(IMAGE, offset, quorum_voter(1))
    assert restored.offset == restored.restored_offset == offset
    assert restored.controller is None, "nobody is the controller by what the backup says"
    assert restored.controller_epoch == IMAGE.controller_epoch + EPOCH_GAP
    assert restored.next_producer_id > IMAGE.next_producer_id
    for name, topic in IMAGE.topics.items():
        for before, after in zip(topic.partitions, restored.topics[name].partitions, strict=True):
            assert after.leader_epoch == before.leader_epoch + EPOCH_GAP
            assert (after.leader, after.isr, after.replicas) == (
                before.leader,
                before.isr,
                before.replicas,
            )
        floor = restored.topics[name].leader_epoch_floor
        assert floor == topic.leader_epoch_floor + EPOCH_GAP, "partitions added there had epochs"
    assert restored.topic_names == IMAGE.topic_names


def test_rule_9_sessions_and_registrations_of_a_backup_are_left_to_expire() -> None:
    restored = restored_image(IMAGE, IMAGE.offset + OFFSET_GAP, quorum_voter(1))
    assert restored.sessions == IMAGE.sessions
    assert restored.brokers == IMAGE.brokers


def test_the_restored_voter_is_the_whole_quorum() -> None:
    restored = restored_image(IMAGE, IMAGE.offset + OFFSET_GAP, quorum_voter(1))
    assert [voter.voter_id for voter in restored.voter_set.voters] == [1]
    assert restored.voter_set.version == restored.offset


def test_p1_journal_and_snapshot_of_a_restored_folder_fit_together(
    path: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "voter"
    made = restore(path, voter_config(folder))
    assert made.position == (IMAGE.offset + OFFSET_GAP, TERM + 1)
    assert read_position(folder / SNAPSHOT_FILE) == made.position
    assert decode_snapshot(read_chunks(folder / SNAPSHOT_FILE)).offset == made.position.last_index
    journal = LmdbJournal(folder / JOURNAL_FILE)
    assert (journal.first_index, journal.last_index) == (made.position.last_index,) * 2
    assert journal.term_at(journal.first_index) == journal.getCurrentTerm() == TERM + 1
    assert journal.getRaftCommitIndex() == journal.last_index
    journal.close()


def test_a_restore_never_overwrites(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "voter"
    folder.mkdir()
    (folder / "something").touch()
    with pytest.raises(BackupError, match="is not empty"):
        restore(path, voter_config(folder))
    assert [entry.name for entry in folder.iterdir()] == ["something"]


def test_a_restore_into_an_empty_folder_may_be(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "voter"
    folder.mkdir()
    restore(path, voter_config(folder))
    assert (folder / SNAPSHOT_FILE).exists()


def test_a_backup_of_another_cluster_is_refused(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "voter"
    with pytest.raises(BackupError, match=r"cluster a-cluster.*cluster\.id=other"):
        restore(path, voter_config(folder, **{"cluster.id": "other"}))
    assert not folder.exists()


# --- salvaging ----------------------------------------------------------------------------------


class StoppedVoter:
    """A voter's data folder, written by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with claimed_data_folder(folder, "quorum", 2, CLUSTER):
            pass
        self.journal = LmdbJournal(folder / JOURNAL_FILE)
        self.journal.setCurrentTerm(TERM, None)

    def append(self, index: int, broker_id: int) -> None:
        record = SessionOpened(session_id=session_of(broker_id), timeout_ms=6_000)
        transaction = Transaction(operations=(Operation(records=(record,)),))
        self.journal.add(bytes([REGULAR]) + encode_transaction(transaction), index, TERM)

    def close(self) -> None:
        self.journal.sync()
        self.journal.close()


@pytest.fixture
def stopped(tmp_path: Path) -> StoppedVoter:
    return StoppedVoter(tmp_path / "voter-2")


def test_salvage_takes_what_may_have_been_acknowledged(stopped: StoppedVoter) -> None:
    write_snapshot(
        stopped.folder / SNAPSHOT_FILE,
        SnapshotPosition(IMAGE.offset + 1, TERM),
        encode_snapshot(IMAGE),
    )
    stopped.journal.reset_to(IMAGE.offset + 1, TERM)
    stopped.append(IMAGE.offset + 2, 8)
    stopped.append(IMAGE.offset + 3, 9)
    stopped.close()
    found = salvage_backup(stopped.folder, now_ms=TAKEN_AT_MS)
    assert set(found.image.sessions) == {*IMAGE.sessions, session_of(8), session_of(9)}
    assert found.image.offset == MetadataOffset(IMAGE.offset + 3)
    assert (found.header.cluster_id, found.term) == (CLUSTER, TERM)


def test_salvage_without_a_snapshot_takes_the_journal(stopped: StoppedVoter) -> None:
    stopped.journal.add(b"\x01", 1, 0)
    stopped.append(2, 8)
    stopped.close()
    found = salvage_backup(stopped.folder, now_ms=TAKEN_AT_MS)
    assert set(found.image.sessions) == {session_of(8)}


def test_salvage_refuses_a_gap_between_snapshot_and_journal(stopped: StoppedVoter) -> None:
    stopped.journal.reset_to(50, TERM)
    stopped.close()
    with pytest.raises(BackupError, match="begins at entry 50, the snapshot ends at 0"):
        salvage_backup(stopped.folder, now_ms=TAKEN_AT_MS)


def test_salvage_refuses_a_folder_in_use(stopped: StoppedVoter) -> None:
    stopped.close()
    with (
        claimed_data_folder(stopped.folder, "quorum", 2, CLUSTER),
        pytest.raises(BackupError, match="used by another process"),
    ):
        salvage_backup(stopped.folder, now_ms=TAKEN_AT_MS)


def test_salvage_refuses_what_is_no_voters_folder(stopped: StoppedVoter, tmp_path: Path) -> None:
    stopped.close()
    with pytest.raises(BackupError, match="no data folder of a voter"):
        salvage_backup(tmp_path / "nothing", now_ms=TAKEN_AT_MS)
    broker = tmp_path / "broker"
    with claimed_data_folder(broker, "broker", 1, CLUSTER):
        pass
    with pytest.raises(BackupError, match="data folder of a broker"):
        salvage_backup(broker, now_ms=TAKEN_AT_MS)
    shutil.rmtree(broker)
