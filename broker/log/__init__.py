"""Partition logs in LMDB (D3): ``LogStore`` opens a folder, ``PartitionLog`` is one log in it."""

from broker.log.cold_read import ColdRead
from broker.log.leader_epochs import EpochEnd, LeaderEpochHistory
from broker.log.options import Appended, LogOptions, LogRead, Records
from broker.log.partition_log import PartitionLog
from broker.log.retention import KEEP_ALL, Retention
from broker.log.store import LogStore

__all__ = [
    "KEEP_ALL",
    "Appended",
    "ColdRead",
    "EpochEnd",
    "LeaderEpochHistory",
    "LogOptions",
    "LogRead",
    "LogStore",
    "PartitionLog",
    "Records",
    "Retention",
]
