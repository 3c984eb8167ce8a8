"""Restores a quorum from a backup: a fresh data folder for one voter, with a history of its own.

The actions of the lost quorum after the backup are gone here, but brokers and clients remember
them. So the restored history must never repeat a number that the lost one may have used for
something else: offsets, terms, controller epochs, leader epochs and producer ids all begin far
beyond the backup's. A watcher of an old offset then gets a snapshot, an old controller is fenced,
and old leaders follow the next one. Sessions and registrations stay, and expire unless kept alive.
"""

from pathlib import Path
from typing import Final, NamedTuple

import immutables
import msgspec

from quorate.common.files.data_folder import DataFolderError, claimed_data_folder
from quorate.common.files.private_files import private_files
from quorate.common.types import ControllerEpoch, LeaderEpoch, MetadataOffset
from quorate.metadata_log.image import Image, VoterSet
from quorate.metadata_log.partitions import Partition, Topic
from quorate.metadata_log.records import QuorumVoter
from quorate.metadata_log.snapshot.snapshot import encode_snapshot
from quorate.quorum.operations.backup_file import Backup, read_backup
from quorate.quorum.quorum_config import QuorumConfig
from quorate.quorum.quorum_errors import BackupError
from quorate.quorum.raft.snapshot_store import SNAPSHOT_FILE
from quorate.quorum.raft.storage.journal import JournalError
from quorate.quorum.raft.storage.lmdb_journal import JOURNAL_FILE, LmdbJournal
from quorate.quorum.raft.storage.snapshot_file import SnapshotPosition, write_snapshot

OFFSET_GAP: Final = 1_000_000_000
"""The lost quorum cannot have committed more transactions than this since its backup."""

EPOCH_GAP: Final = 1_000_000
"""The lost quorum cannot have held more elections than this; 2,000 restores fit into an epoch's 32
bits.
"""

PRODUCER_ID_GAP: Final = 1_000_000_000_000


class Restored(NamedTuple):
    """The result of a restore."""

    backup: Backup
    position: SnapshotPosition
    folder: Path


def restore(path: Path, config: QuorumConfig) -> Restored:
    """Make the data folder of ``config``'s voter from the backup in ``path``.

    The voter is then a quorum of its own; the others join it as new voters.

    Raises:
        BackupError: the backup is unusable or of another cluster, or the folder is not empty.
    """
    backup = read_backup(path)
    if backup.header.cluster_id != config.cluster_id:
        raise BackupError(
            f"{path} is of cluster {backup.header.cluster_id}, the configuration says "
            f"cluster.id={config.cluster_id}: correct it, or use another backup"
        )
    folder = config.data_dir
    _require_empty(folder)
    position = SnapshotPosition(backup.image.offset + OFFSET_GAP, backup.term + 1)
    try:
        with (
            private_files(),
            claimed_data_folder(
                folder, "quorum", config.voter_id, config.cluster_id
            ) as directory_id,
        ):
            own = msgspec.structs.replace(config.own.as_member(), directory_id=directory_id)
            image = restored_image(backup.image, position.last_index, own)
            _write(folder, position, image)
    except (DataFolderError, JournalError, OSError) as error:
        raise BackupError(
            f"cannot restore into {folder}: {error}. Remove what was written, and try again"
        ) from error
    return Restored(backup, position, folder)


def restored_image(image: Image, offset: int, own: QuorumVoter) -> Image:
    """Return the backup's image as the first one of a new history that begins at ``offset``."""
    at = MetadataOffset(offset)
    return msgspec.structs.replace(
        image,
        offset=at,
        restored_offset=at,
        controller=None,
        controller_epoch=ControllerEpoch(image.controller_epoch + EPOCH_GAP),
        next_producer_id=image.next_producer_id + PRODUCER_ID_GAP,
        topics=immutables.Map(
            {name: _in_new_epochs(topic) for name, topic in image.topics.items()}
        ),
        voter_set=VoterSet((own,), at),
    )


def _in_new_epochs(topic: Topic) -> Topic:
    leaves = tuple(
        msgspec.structs.replace(leaf, leader_epoch=_new_epoch(leaf)) for leaf in topic.partitions
    )
    floor = LeaderEpoch(topic.leader_epoch_floor + EPOCH_GAP)
    return msgspec.structs.replace(topic, partitions=leaves, leader_epoch_floor=floor)


def _new_epoch(leaf: Partition) -> LeaderEpoch:
    return LeaderEpoch(leaf.leader_epoch + EPOCH_GAP)


def _require_empty(folder: Path) -> None:
    try:
        if folder.exists() and any(folder.iterdir()):
            raise BackupError(
                f"data folder {folder} is not empty: a restore never overwrites. "
                "Move what is there aside"
            )
    except OSError as error:
        raise BackupError(f"cannot read data folder {folder}: {error.strerror}") from error


def _write(folder: Path, position: SnapshotPosition, image: Image) -> None:
    """Write the files, the journal first: without the snapshot behind it a voter
    refuses to start.
    """
    journal = LmdbJournal(folder / JOURNAL_FILE)
    try:
        journal.reset_to(*position)
        journal.setCurrentTerm(position.last_term, None)
    finally:
        journal.close()
    write_snapshot(folder / SNAPSHOT_FILE, position, encode_snapshot(image))
