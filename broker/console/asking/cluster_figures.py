"""The figures of all brokers, for one person: this broker's own, and what the others send."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from quorate.broker.console.asking.cluster_requests import PEER_TIMEOUT_S, ClusterRequests
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.asking.own_reads import OwnReads
from quorate.broker.console.asking.person import Person, encode_person
from quorate.common.types import BrokerId
from quorate_proto.v1.console_pb2 import (
    AuditLogRequest,
    AuditLogResponse,
    FiguresRequest,
    FiguresResponse,
)

_NONE: Final = FiguresResponse()


@dataclass(frozen=True, slots=True)
class Figures:
    """Series by broker, and what the brokers say beside them."""

    by_broker: Mapping[BrokerId, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    last_at_ms: int = 0
    interval_ms: int = 10_000
    alerts: Sequence[str] = ()
    silent: Mapping[BrokerId, str] = field(default_factory=dict)
    """The brokers that sent nothing, and why."""

    def of(self, name: str) -> dict[BrokerId, Sequence[float]]:
        """Return a series of each broker that has it."""
        return {
            broker: series[name]
            for broker, series in sorted(self.by_broker.items())
            if name in series
        }

    def names(self, prefix: str) -> list[str]:
        """Return the names of series that begin with ``prefix``, over all brokers."""
        found = {
            name for series in self.by_broker.values() for name in series if name.startswith(prefix)
        }
        return sorted(found)


class ClusterFigures:
    """Reads what brokers tell of themselves."""

    def __init__(self, requests: ClusterRequests, own: OwnReads) -> None:
        self._requests = requests
        self._own = own

    async def read(
        self, person: Person, names: Sequence[str], largest: Sequence[str] = ()
    ) -> Figures:
        """Return the series of these names of every live broker that has them."""
        here = self._requests.broker_id

        async def ask(broker: BrokerId) -> FiguresResponse:
            if broker == here:
                return self._own.figures(person, names, largest)
            request = FiguresRequest(
                broker_id=here, person=encode_person(person), names=names, largest=largest
            )
            return await self._requests.call(
                broker, lambda stub: stub.ReadFigures(request, timeout=PEER_TIMEOUT_S)
            )

        answers = await self._requests.each(self._requests.live_brokers, ask)
        told = {one: answer for one, answer in answers.items() if not isinstance(answer, AskFailed)}
        silent = {one: str(why) for one, why in answers.items() if isinstance(why, AskFailed)}
        silent |= {one: answer.refusal for one, answer in told.items() if answer.refusal}
        own = told.get(here, _NONE)
        return Figures(
            by_broker={
                one: {series.name: series.values for series in answer.series}
                for one, answer in told.items()
            },
            last_at_ms=own.last_at_ms,
            interval_ms=own.interval_ms or 10_000,
            alerts=[alert for answer in told.values() for alert in answer.alerts],
            silent=silent,
        )

    async def audit_logs(
        self, person: Person, lines_max: int
    ) -> Mapping[BrokerId, Sequence[str] | AskFailed]:
        """Return the newest lines of the audit log of each live broker."""
        here = self._requests.broker_id

        async def ask(broker: BrokerId) -> Sequence[str]:
            if broker == here:
                return await self._own.audit_log(person, lines_max)
            request = AuditLogRequest(
                broker_id=here, person=encode_person(person), lines_max=lines_max
            )
            answer: AuditLogResponse = await self._requests.call(
                broker, lambda stub: stub.ReadAuditLog(request, timeout=PEER_TIMEOUT_S)
            )
            if answer.refusal:
                raise AskFailed(answer.refusal)
            return answer.lines

        return await self._requests.each(self._requests.live_brokers, ask)
