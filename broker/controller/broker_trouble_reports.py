"""The newest reports of brokers about their disks and logs, which are valid for a while. It has no
side effects.

Which replicas are offline is known by these reports alone (KIP-858 keeps it in the metadata log). A
new controller has none yet. It takes it from the image, which shows the result of earlier reports:
a member of an ISR that is live and admitted leads, unless its replica is offline.
"""

from typing import Final, NamedTuple

from quorate.broker.controller.managers import broker_manager
from quorate.broker.controller.managers.partition_change import Brokers, OfflineReplicas
from quorate.common.types import BrokerEpoch, BrokerId, TopicId, TopicIdPartition
from quorate.metadata_log.image import Image
from quorate_proto.v1 import control_pb2

BELIEVED_MS: Final = 15_000
"""The time for which a report counts. A broker in trouble repeats it
(``control.replica_reporter``)."""

_NAMED_MAX: Final = 5


class _Report(NamedTuple):
    broker_epoch: BrokerEpoch
    until_ms: int
    is_full: bool
    damaged: tuple[tuple[TopicId, int], ...]
    offline_directories: tuple[str, ...]
    offline: frozenset[TopicIdPartition]
    is_presumed: bool = False
    """Whether the broker itself has not reported yet."""


class BrokerTroubleReports:
    """Keeps the newest report of each broker in trouble. Times are those of a monotonic clock."""

    def __init__(self) -> None:
        self._reports: dict[BrokerId, _Report] = {}

    def record(self, request: control_pb2.ReportReplicasRequest, now_ms: int) -> None:
        """Record that a broker is in trouble, or no longer."""
        broker_id = BrokerId(request.broker_id)
        offline = broker_manager.reported_offline(request)
        if not (request.is_full or request.damaged or request.offline_directories or offline):
            self._reports.pop(broker_id, None)
            return
        damaged = tuple((TopicId(one.topic_id), one.partition) for one in request.damaged)
        self._reports[broker_id] = _Report(
            BrokerEpoch(request.broker_epoch),
            now_ms + BELIEVED_MS,
            request.is_full,
            damaged,
            tuple(request.offline_directories[:_NAMED_MAX]),
            offline,
        )

    def presume(self, image: Image, now_ms: int) -> bool:
        """Take from ``image`` which replicas earlier controllers knew to be offline.

        It counts for a while, in which the brokers report. Return whether there are any.
        """
        for broker_id, tips in broker_manager.leaderless(image).items():
            self._reports[broker_id] = _Report(
                image.brokers[broker_id].epoch,
                now_ms + BELIEVED_MS,
                is_full=False,
                damaged=(),
                offline_directories=(),
                offline=frozenset(tips),
                is_presumed=True,
            )
        return bool(self._reports)

    def offline(self, image: Image, now_ms: int) -> OfflineReplicas:
        """Return the replicas that are offline.

        A report of them counts until the next incarnation of the broker, or until it says
        otherwise: a log directory that has failed does not come back while the broker runs.
        """
        found: dict[TopicIdPartition, Brokers] = {}
        for broker_id, report in self._reports.items():
            broker = image.brokers.get(broker_id)
            if broker is None or broker.epoch != report.broker_epoch:
                continue
            if report.is_presumed and now_ms >= report.until_ms:
                continue
            alone = frozenset({broker_id})
            both = {tip: found[tip] | alone for tip in found.keys() & report.offline}
            found |= dict.fromkeys(report.offline, alone) | both
        return found

    def offline_at(self, broker_id: BrokerId) -> frozenset[TopicIdPartition]:
        """Return the replicas that the newest report of a broker says are offline."""
        report = self._reports.get(broker_id)
        return frozenset() if report is None else report.offline

    def full(self, now_ms: int) -> list[tuple[BrokerId, BrokerEpoch]]:
        """Return the brokers whose disk is full."""
        return [
            (broker_id, report.broker_epoch)
            for broker_id, report in self._reports.items()
            if report.is_full and now_ms < report.until_ms
        ]

    def alerts(self, image: Image, now_ms: int) -> list[str]:
        """Return the alerts for operators: which broker, what is wrong, and what to do."""
        names = {topic.topic_id: topic.name for topic in image.topics.values()}
        found = []
        for broker_id, report in sorted(self._reports.items()):
            if now_ms >= report.until_ms:
                continue
            if report.is_full:
                found.append(
                    f"broker {broker_id}: the disk of its log directory is full: it serves reads "
                    "and refuses batches; make room there, or move partitions away"
                )
            if report.offline_directories:
                found.append(
                    f"broker {broker_id}: the log directories "
                    f"{', '.join(report.offline_directories)} are offline, and the replicas in "
                    "them: others lead where they can; repair or replace the disks, then restart "
                    "that broker"
                )
            there = [(names[topic], number) for topic, number in report.damaged if topic in names]
            if there and not report.offline_directories:
                more = f" and {len(there) - _NAMED_MAX} more" if len(there) > _NAMED_MAX else ""
                listed = ", ".join(f"{name}-{number}" for name, number in there[:_NAMED_MAX])
                found.append(
                    f"broker {broker_id}: damaged logs of {listed}{more}: they are fetched again "
                    "where another replica has them; look at that broker's log and its disk"
                )
        return found
