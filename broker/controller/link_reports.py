"""The links between brokers that are reported to be broken, which is believed for a while. It has
no side effects.

A link counts as broken if either of its ends reports it: a broker that is cut off from the
controller cannot report. It counts as broken for a while longer than it is reported, so that a link
that comes and goes moves leadership once, not every time.
"""

from typing import Final, NamedTuple

from quorate.broker.controller.broker_probes import Unreached
from quorate.broker.controller.managers import reachability
from quorate.broker.controller.managers.partition_change import Brokers
from quorate.common.types import BrokerEpoch, BrokerId
from quorate.metadata_log.image import Image
from quorate_proto.v1 import control_pb2

BELIEVED_MS: Final = 10_000
"""The time for which a link counts as broken after the last report (``control.link_reporter``)."""

PRESENT_MS: Final = 4_000
"""The time for which a report shows that a link is broken now, unless its reporter takes it back.
Reports of one cut end at different times. Those that are left when the first are no longer believed
must not move leadership."""

UNREACHED_MS: Final = 3_000
"""The time for which a broker that answers probes again still counts as not reached. The brokers
that reported it need a moment to hear it again, too. It is short, because a broker that was merely
busy must not keep the controller from a decision."""

SETTLE_MS: Final = 1_000
"""The time in which all ends of links that break together report them. A decision before would be
about a part of them."""

SETTLE_MAX_MS: Final = 3_000

SETTLE_ANEW_MS: Final = 500
"""The time in which a new controller is told of links that broke before its tenure."""

_NAMED_MAX: Final = 5

Link = frozenset[BrokerId]
"""The two brokers at the ends of a link."""


class _Report(NamedTuple):
    reporter_epoch: BrokerEpoch
    peer_epoch: BrokerEpoch
    told_ms: int
    """The time at which this controller was told first."""
    since_ms: int
    """The time from which the link counts as broken, as the reporter says."""
    present_until_ms: int
    until_ms: int


class LinkReports:
    """Keeps the newest report of each end of a link. Times are those of a monotonic clock."""

    def __init__(self) -> None:
        self._reports: dict[tuple[BrokerId, BrokerId], _Report] = {}

    def record(self, request: control_pb2.ReportLinksRequest, now_ms: int) -> None:
        """Record whom a broker does not hear."""
        reporter = BrokerId(request.broker_id)
        epoch = BrokerEpoch(request.broker_epoch)
        named = {silent.broker_id for silent in request.silent}
        for key, known in self._reports.items():
            if key[0] == reporter and key[1] not in named:
                self._reports[key] = known._replace(present_until_ms=now_ms)
        for silent in request.silent:
            key = (reporter, BrokerId(silent.broker_id))
            earlier = self._reports.get(key)
            is_new = earlier is None or now_ms >= earlier.until_ms
            self._reports[key] = _Report(
                epoch,
                BrokerEpoch(silent.broker_epoch),
                now_ms if earlier is None or is_new else earlier.told_ms,
                now_ms - max(0, silent.broken_ms),
                now_ms + PRESENT_MS,
                now_ms + BELIEVED_MS,
            )

    def record_unreached(
        self, own: BrokerId, own_epoch: BrokerEpoch, unreached: Unreached, now_ms: int
    ) -> None:
        """Record that a broker does not answer this controller, unless its silence is reported
        already. All ends have had time to report meanwhile."""
        key = (own, unreached.broker_id)
        known = self._reports.get(key)
        until_ms = now_ms + UNREACHED_MS
        if known is None or known.peer_epoch != unreached.broker_epoch or known.until_ms < until_ms:
            since_ms = unreached.since_ms
            self._reports[key] = _Report(
                own_epoch, unreached.broker_epoch, since_ms, since_ms, until_ms, until_ms
            )

    def broken(self, image: Image, now_ms: int) -> frozenset[Link]:
        """Return the links between live brokers, in their present incarnations, that are broken."""
        return frozenset(frozenset(key) for key, _ in self._valid(image, now_ms))

    def cut_off(
        self, image: Image, controller: BrokerId, now_ms: int, also: frozenset[Link] = frozenset()
    ) -> Brokers:
        """Return the brokers that are cut off from the others, if the links in ``also`` are broken,
        too."""
        broken = self.broken(image, now_ms) | also
        live = frozenset(image.brokers)
        return reachability.cut_off(live, broken, controller) if broken else frozenset()

    def with_broken_links_now(self, image: Image, now_ms: int) -> Brokers:
        """Return the brokers with a link that is reported to be broken at present."""
        valid = self._valid(image, now_ms)
        return frozenset(
            one for key, report in valid if now_ms < report.present_until_ms for one in key
        )

    def alerts(self, image: Image, now_ms: int) -> list[str]:
        """Return the alert for operators: which links are broken, and where to look."""
        links = sorted(sorted(link) for link in self.broken(image, now_ms))
        if not links:
            return []
        listed = ", ".join(f"{one} and {other}" for one, other in links[:_NAMED_MAX])
        more = f" and {len(links) - _NAMED_MAX} more pairs" if len(links) > _NAMED_MAX else ""
        return [
            f"brokers do not hear each other: {listed}{more}; look at the network between them: "
            "leadership stays away from those that the others do not reach"
        ]

    def are_settled(self, image: Image, now_ms: int) -> bool:
        """Return whether all that breaks together has probably been reported."""
        valid = [report for _, report in self._valid(image, now_ms)]
        if not valid:
            return True
        told_ms = [report.told_ms for report in valid]
        if now_ms - min(told_ms) >= SETTLE_MAX_MS:
            return True
        newest_ms = max(report.since_ms for report in valid)
        return now_ms - newest_ms >= SETTLE_MS and now_ms - max(told_ms) >= SETTLE_ANEW_MS

    def _valid(self, image: Image, now_ms: int) -> list[tuple[tuple[BrokerId, BrokerId], _Report]]:
        brokers = image.brokers
        return [
            (key, report)
            for key, report in self._reports.items()
            if now_ms < report.until_ms
            and key[0] != key[1]
            and key[0] in brokers
            and key[1] in brokers
            and brokers[key[0]].epoch == report.reporter_epoch
            and brokers[key[1]].epoch == report.peer_epoch
        ]
