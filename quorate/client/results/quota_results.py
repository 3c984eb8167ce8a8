"""Client quotas: their entities, how they are changed, and which are set."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from quorate.client.results.item_outcome import ItemOutcome, outcome_of
from quorate_proto.v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The users and clients that a quota applies to, or the address; a field that is None does not
    restrict them.

    ``""`` stands for all users, client ids or addresses that have no quota of their own.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def to_proto(self) -> list[admin_pb2.QuotaEntityPart]:
        return [
            admin_pb2.QuotaEntityPart(entity_type=kind, name=name or None)
            for kind, name in (
                ("user", self.user),
                ("client-id", self.client_id),
                ("ip", self.ip),
            )
            if name is not None
        ]

    @classmethod
    def from_proto(cls, parts: Iterable[admin_pb2.QuotaEntityPart]) -> "QuotaEntity":
        names = {part.entity_type: part.name for part in parts}
        return cls(names.get("user"), names.get("client-id"), names.get("ip"))


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """Quotas of one entity to set, or to remove where the value is None; other quotas are kept."""

    entity: QuotaEntity
    values: Mapping[str, float | None]

    def to_proto(self) -> admin_pb2.QuotaAlteration:
        return admin_pb2.QuotaAlteration(
            entity=self.entity.to_proto(),
            changes=[
                admin_pb2.QuotaChange(key=key, value=value) for key, value in self.values.items()
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaResult(ItemOutcome):
    """The result for one entity."""

    entity: QuotaEntity

    @classmethod
    def from_proto(cls, result: admin_pb2.QuotaResult) -> "QuotaResult":
        return cls(entity=QuotaEntity.from_proto(result.entity), **outcome_of(result))


class _Match(IntEnum):
    NAME = 0
    DEFAULT = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Selects entities of one type (``"user"``, ``"client-id"``, ``"ip"``).

    They are those with that name, the default (``""``), or any (None).
    """

    entity_type: str
    name: str | None = None

    def to_proto(self) -> admin_pb2.QuotaFilter:
        match = _Match.ANY if self.name is None else _Match.NAME if self.name else _Match.DEFAULT
        return admin_pb2.QuotaFilter(
            entity_type=self.entity_type, match_type=match, match=self.name or ""
        )


@dataclass(frozen=True, slots=True)
class QuotaEntry:
    """The quotas that are set for exactly one entity, by key."""

    entity: QuotaEntity
    values: Mapping[str, float]

    @classmethod
    def from_proto(cls, entry: admin_pb2.QuotaEntry) -> "QuotaEntry":
        values = dict(sorted(entry.values.items()))
        return cls(QuotaEntity.from_proto(entry.entity), values)
