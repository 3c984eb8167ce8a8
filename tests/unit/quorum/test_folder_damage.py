"""A bit of any file of a voter's folder is flipped: the voter knows what it knew, or refuses the
folder with the file's name and advice. The large campaign is ``tests.campaign``.
"""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from quorate.common.files.data_folder import IDENTITY_FILE, claimed_data_folder
from quorate.metadata_log.image import Image
from quorate.metadata_log.snapshot.snapshot import encode_snapshot
from quorate.quorum import process
from quorate.quorum.operations.backup_file import Backup, BackupHeader, read_backup, write_backup
from quorate.quorum.operations.first_start import (
    FIRST_VOTERS_FILE,
    read_first_voters,
    write_first_voters,
)
from quorate.quorum.operations.restore import restore
from quorate.quorum.quorum_config import QuorumConfig, quorum_config
from quorate.quorum.quorum_errors import BackupError
from quorate.quorum.raft.guards import SafetyViolation
from quorate.quorum.raft.raft_node import RaftNode
from quorate.quorum.raft.snapshot_store import SNAPSHOT_FILE
from quorate.quorum.raft.storage.lmdb_journal import JOURNAL_FILE, LmdbJournal
from quorate.quorum.raft.storage.promises import Promise
from quorate.quorum.voter.state_machine import QuorumStateMachine
from tests.support.own_interpreter import run_in_own_interpreter, tell

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

SEED: Final = 16
BACKUP_FILE: Final = "quorum.backup"
FLIPS_PER_FILE: Final = {
    JOURNAL_FILE: 160,
    SNAPSHOT_FILE: 80,
    IDENTITY_FILE: 40,
    FIRST_VOTERS_FILE: 40,
    BACKUP_FILE: 80,
}
ADVICE: Final = ("Restore", "restore", "start this", "Use another backup", "configuration")


def config_of(folder: Path) -> QuorumConfig:
    values = {
        "cluster.id": "c",
        "data.dir": str(folder),
        "security.protocol": "PLAINTEXT",
        "node.id": 1,
        "quorum.voters": "1@127.0.0.1:7001/7101,2@127.0.0.1:7002/7102",
    }
    return quorum_config(values)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A folder with every file that a voter keeps, and a backup."""
    folder, backup = tmp_path / "whole", tmp_path / BACKUP_FILE
    header = BackupHeader(cluster_id="c", taken_at_ms=1, source="a test")
    write_backup(backup, Backup(header, 3, Image()))
    restore(backup, config_of(folder))
    write_first_voters(folder, {1: b"a" * 16, 2: b"b" * 16})
    journal = LmdbJournal(folder / JOURNAL_FILE)
    first = journal.last_index + 1
    for index in range(first, first + 40):
        journal.add(b"\x01" + b"%d" % index, index, 5)
        journal.sync()
    journal.note_promise(2, Promise(b"b" * 16, 5, first, 5))
    journal.setCurrentTerm(6, "2")
    journal.close()
    shutil.move(backup, folder / BACKUP_FILE)
    return folder


@contextmanager
def opened(folder: Path) -> Iterator[tuple[bytes, RaftNode, QuorumStateMachine]]:
    """As the voter's process opens it."""
    config = config_of(folder)
    with claimed_data_folder(folder, "quorum", 1, "c", process.first_journal) as directory_id:
        process.require_journal(folder)
        machine = QuorumStateMachine()
        node = process._open_node(config, directory_id, machine, None)
        try:
            yield directory_id, node, machine
        finally:
            node.close()


def content(folder: Path) -> tuple[object, ...]:
    """Everything that a voter knows from its folder."""
    backup = read_backup(folder / BACKUP_FILE)
    with opened(folder) as (directory_id, node, machine):
        journal = node.journal
        return (
            directory_id,
            journal[:],
            (journal.getCurrentTerm(), journal.getVotedForNodeId(), journal.getRaftCommitIndex()),
            dict(journal.promises),
            b"".join(encode_snapshot(machine.image)),
            read_first_voters(folder),
            (backup.header, backup.term, b"".join(encode_snapshot(backup.image))),
        )


def outcome(folder: Path, name: str, expected: tuple[object, ...]) -> str:
    try:
        found = content(folder)
    except (*process._FOR_PEOPLE, BackupError) as error:
        said = str(error)
        if name not in said and str(folder) not in said:
            return f"names no file: {said}"
        return "refused" if any(word in said for word in ADVICE) else f"no advice: {said}"
    except BaseException as error:  # noqa: BLE001 - to be told by the child
        return f"bare {error!r}"
    return "same" if found == expected else "another content"


def flip_bits(whole: Path, folder: Path, name: str) -> None:
    """Flip bits of one file, each in a folder of its own."""
    chance = random.Random(f"{SEED} {name}")
    expected = content(whole)
    data = (whole / name).read_bytes()
    used = [at for at, byte in enumerate(data) if byte]
    outcomes: dict[int, str] = {}
    for _ in range(FLIPS_PER_FILE[name]):
        bit = 8 * chance.choice(used) + chance.randrange(8)
        tell(f"seed {SEED}, {name}, bit {bit}")
        shutil.copytree(whole, folder)
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        (folder / name).write_bytes(damaged)
        outcomes[bit] = outcome(folder, name, expected)
        shutil.rmtree(folder)
    wrong = {bit: said for bit, said in outcomes.items() if said not in ("same", "refused")}
    assert not wrong, f"{name}: {dict(list(wrong.items())[:5])}"
    assert "refused" in outcomes.values()


@pytest.mark.parametrize("name", FLIPS_PER_FILE)
def test_no_flipped_bit_of_a_voters_folder_is_believed(
    whole: Path, tmp_path: Path, name: str
) -> None:
    run_in_own_interpreter(flip_bits, whole, tmp_path / "damaged", name)


def test_a_folder_without_its_identity_is_refused(whole: Path) -> None:
    (whole / IDENTITY_FILE).unlink()
    with pytest.raises(process.CannotStart, match=r"identity\.json is missing"), opened(whole):
        pass


def test_an_old_journal_beside_a_newer_snapshot_is_refused(whole: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.lmdb"
    shutil.copy(whole / JOURNAL_FILE, old)
    with opened(whole) as (_, node, machine):
        node.last_applied = node.commit_index = node.journal.last_index
        node.journal.sync()
        machine.image = Image()
        node._write_snapshot()
        node._snapshots.close()
        assert node._snapshots.finished() is not None
        last = node.journal.last_index
    shutil.copy(old, whole / JOURNAL_FILE)
    journal = LmdbJournal(whole / JOURNAL_FILE)
    journal.deleteEntriesFrom(20)
    journal.sync()
    journal.close()
    with (
        pytest.raises(SafetyViolation, match=f"ends with entry {last}.*is an old copy"),
        opened(whole),
    ):
        pass
