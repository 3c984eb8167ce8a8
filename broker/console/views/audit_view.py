"""The audit trail: the lines of all brokers' audit logs, merged. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from quorate.common.types import BrokerId


class AuditRow(NamedTuple):
    """One line: who asked for what, and with which result."""

    timestamp: str
    principal: str
    client_host: str
    client_id: str
    api: str
    resource: str
    result: str
    broker: int
    detail: str

    @property
    def is_refused(self) -> bool:
        return self.result != "NONE"


def audit_rows(lines: Mapping[BrokerId, Sequence[str]]) -> list[AuditRow]:
    """Return the lines of each broker as rows, the newest first. What is no line is left out."""
    rows = [row for broker, of in lines.items() for row in map(_parsed(broker), of) if row]
    return sorted(rows, key=lambda one: one.timestamp, reverse=True)


def _parsed(broker: int) -> Any:  # noqa: ANN401 - a function
    def row(line: str) -> AuditRow | None:
        try:
            entry = json.loads(line)
        except ValueError:
            return None
        if not isinstance(entry, dict):
            return None

        def of(name: str) -> str:
            return str(entry.get(name) or "")

        detail = [] if not entry.get("validate_only") else ["only validated"]
        if entry.get("metadata_offset"):
            detail.append(f"offset {entry['metadata_offset']}")
        return AuditRow(
            of("timestamp"),
            of("principal"),
            of("client_host"),
            of("client_id"),
            of("api"),
            of("resource"),
            of("result"),
            broker,
            ", ".join(detail),
        )

    return row


def matching(rows: Iterable[AuditRow], part: str) -> list[AuditRow]:
    """Return the rows in which ``part`` occurs in who, what or on what."""
    lowered = part.lower()
    return [
        row
        for row in rows
        if not lowered
        or any(lowered in one.lower() for one in (row.principal, row.api, row.resource, row.result))
    ]
