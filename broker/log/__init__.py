"""Partition logs in LMDB (D3): ``LogManager`` opens a folder, ``PartitionLog`` is one log in it.

The rooms, from the top down; each imports only those below it (the contract ``log`` of
import-linter):

    cleaning        the log cleaner and its process, which compacts one log at a time
    directories     LogDirectories: all log folders of a broker, and what to do without one of them
    log_manager     LogManager: opens and closes a folder, knows which logs there are
    future_logs     the copies that moves of replicas make, until they count
    recovery        determines what a folder holds when it opens; examines and repairs damage
    rewriting       replaces batches, and copies live ones out of mostly dead segments
    partition_log   PartitionLog: appends to one log and truncates it
    writing         writes to the disk: log writer, group commit, journal, disk space
    stored          StoredLog: reads one log; which part retention or cleaning may remove
    checkpoints     the table ``store.mdb``: partitions, segments, truncations, checkpoints
    segments        the files that hold the batches, and the index of where each batch is
    compaction      computes the batches that remain when a log is compacted; pure
    state           leader epochs, producer state and transactions of one partition; pure
    batches         the record batch format: headers, records, codecs, markers, checks; pure
    options         the options of a store, and the results that its logs return
"""

from quorate.broker.log.directories.log_directories import LogDirectories
from quorate.broker.log.log_manager import LogCallbacks, LogManager
from quorate.broker.log.options import ColdRead, LogAppendInfo, LogOptions, LogRead, Records
from quorate.broker.log.partition_log import PartitionLog
from quorate.broker.log.state.leader_epoch_cache import EpochEnd, LeaderEpochCache
from quorate.broker.log.stored.retention import KEEP_ALL, Retention
from quorate.broker.log.stored.stored_log import StoredLog

__all__ = [
    "KEEP_ALL",
    "ColdRead",
    "EpochEnd",
    "LeaderEpochCache",
    "LogAppendInfo",
    "LogCallbacks",
    "LogDirectories",
    "LogManager",
    "LogOptions",
    "LogRead",
    "PartitionLog",
    "Records",
    "Retention",
    "StoredLog",
]
