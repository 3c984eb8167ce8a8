"""Features of the cluster and their levels (B4)."""

from dataclasses import dataclass

from quorate.client.results.item_outcome import ItemOutcome, outcome_of
from quorate_proto.v1 import admin_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureInfo:
    """A feature's level, and the highest level that all live brokers support."""

    name: str
    level: int
    newest: int
    meaning: str

    @classmethod
    def from_proto(cls, feature: admin_pb2.FeatureStatus) -> "FeatureInfo":
        return cls(
            name=feature.name,
            level=feature.level,
            newest=feature.newest,
            meaning=feature.meaning,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureResult(ItemOutcome):
    """The result for one feature; ``level`` is in force from now on."""

    name: str
    level: int

    @classmethod
    def from_proto(cls, result: admin_pb2.FeatureResult) -> "FeatureResult":
        return cls(
            name=result.name,
            level=result.level,
            **outcome_of(result),
        )

    def _refusal(self) -> str:
        return self.message or f"feature {self.name!r}"
