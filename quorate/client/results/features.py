"""Features of the cluster and their levels (B4)."""

from dataclasses import dataclass

from quorate.client.errors import RequestFailed
from quorate_proto.v1 import admin_pb2, errors_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureInfo:
    """A feature's level, and how high it could be raised as far as live brokers are concerned."""

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
class FeatureResult:
    """Outcome for one feature; ``level`` is in force from now on."""

    name: str
    level: int
    error_code: int
    message: str

    @classmethod
    def from_proto(cls, result: admin_pb2.FeatureResult) -> "FeatureResult":
        return cls(
            name=result.name,
            level=result.level,
            error_code=result.error_code,
            message=result.error_message,
        )

    @property
    def ok(self) -> bool:
        return self.error_code == errors_pb2.NONE

    def raise_for_error(self) -> "FeatureResult":
        """This result.

        Raises:
            RequestFailed: the change was refused.
        """
        if not self.ok:
            raise RequestFailed(self.error_code, self.message or f"feature {self.name!r}")
        return self
