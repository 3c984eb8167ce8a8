"""What a broker tells of itself that no Kafka API tells: figures of the last hour, and its audit
log.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.asking.person import Person
from quorate.broker.console.figures.figure_access import may_see
from quorate.broker.console.figures.sampler import INTERVAL_MS, Sampler, topics_of
from quorate.broker.security.authorizer import Authorizer
from quorate.common.acl_types import AclOperation
from quorate_proto.v1.console_pb2 import FigureSeries, FiguresResponse

AUDIT_LINES_MAX: Final = 500
AUDIT_BYTES_MAX: Final = 1 << 20
"""The most bytes of the end of an audit log that are read."""

SERIES_ASKED_MAX: Final = 400
"""The most series of one answer: 1.5 kB each."""


class OwnReads:
    """Reads of this broker, with the rights of a person."""

    def __init__(
        self,
        authorizer: Authorizer,
        audit_log: Path | None,
        alerts: Callable[[], Sequence[str]],
    ) -> None:
        """``audit_log`` is None if this broker keeps none."""
        self._authorizer = authorizer
        self.sampler: Sampler | None = None
        """What takes the figures, or None if this broker has no console."""
        self._audit_log = audit_log
        self._alerts = alerts

    def figures(
        self, person: Person, names: Iterable[str], largest: Iterable[str]
    ) -> FiguresResponse:
        """Return the series that the person asks for and may see.

        ``largest`` has texts such as ``lag group``, for the groups with the largest lag.
        """
        rights = self._authorizer.rights_of(person)
        sampler = self.sampler
        answer = FiguresResponse(interval_ms=INTERVAL_MS)
        if rights.may_cluster(AclOperation.DESCRIBE, log_denied=False):
            answer.alerts.extend(self._alerts())
        if sampler is None:
            answer.refusal = "it keeps no figures: set console.listener on it"
            return answer
        history = sampler.history

        def allowed(name: str) -> bool:
            return may_see(rights, name, lambda group: topics_of(sampler.topics_of_groups, group))

        wanted = dict.fromkeys(names)
        for one in largest:
            figure, _, kind = one.partition(" ")
            wanted |= dict.fromkeys(history.largest(figure, kind, filter(allowed, history.names())))
        answer.last_at_ms = history.last_at_ms
        for name in tuple(wanted)[:SERIES_ASKED_MAX]:
            if (values := history.values(name)) and allowed(name):
                answer.series.append(FigureSeries(name=name, values=values))
        return answer

    async def audit_log(self, person: Person, lines_max: int) -> Sequence[str]:
        """Return the newest lines of the audit log.

        It needs CLUSTER_ACTION, as the metadata log does, which tells of the same changes.

        Raises:
            AskFailed: the person may not read it, or there is none.
        """
        try:
            self._authorizer.rights_of(person).require_cluster(AclOperation.CLUSTER_ACTION)
        except KafkaError as error:
            raise AskFailed(error.message) from error
        if self._audit_log is None:
            raise AskFailed("it keeps no audit log (audit.log)")
        most = min(max(lines_max, 0), AUDIT_LINES_MAX)
        return await asyncio.to_thread(last_lines, self._audit_log, most)


def last_lines(path: Path, lines_max: int) -> list[str]:
    """Return the last lines of a file, of its last ``AUDIT_BYTES_MAX`` bytes; none if there is no
    such file.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = max(0, size - AUDIT_BYTES_MAX)
            file.seek(begin)
            lines = file.read(AUDIT_BYTES_MAX).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[1 if begin else 0 :][-lines_max:] if lines_max else []
