"""The newest reports of brokers about their disks and logs, which are valid for a while. It has no
side effects."""

from typing import Final, NamedTuple

from quorate.common.types import BrokerEpoch, BrokerId, TopicId
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


class BrokerTroubleReports:
    """Keeps the newest report of each broker in trouble. Times are those of a monotonic clock."""

    def __init__(self) -> None:
        self._reports: dict[BrokerId, _Report] = {}

    def record(self, request: control_pb2.ReportReplicasRequest, now_ms: int) -> None:
        """Record that a broker is in trouble, or no longer."""
        broker_id = BrokerId(request.broker_id)
        if not (request.is_full or request.damaged or request.offline_directories):
            self._reports.pop(broker_id, None)
            return
        damaged = tuple((TopicId(one.topic_id), one.partition) for one in request.damaged)
        self._reports[broker_id] = _Report(
            BrokerEpoch(request.broker_epoch),
            now_ms + BELIEVED_MS,
            request.is_full,
            damaged,
            tuple(request.offline_directories[:_NAMED_MAX]),
        )

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
