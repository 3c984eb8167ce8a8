"""Changes of configuration, and their outcomes."""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate.client.errors import error_name
from quorate_proto.v1 import admin_pb2, errors_pb2


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Keys of one entity to set, or to remove where the value is None; the others stay.

    ``entity_type``: "topic" or "broker". A broker's ``entity_name`` is its id; "" is every broker
    without a value of its own.
    """

    entity_type: str
    entity_name: str
    values: Mapping[str, str | None]

    def to_proto(self) -> admin_pb2.ConfigChange:
        return admin_pb2.ConfigChange(
            entity_type=self.entity_type,
            entity_name=self.entity_name,
            values={key: value for key, value in self.values.items() if value is not None},
            removed=[key for key, value in self.values.items() if value is None],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResult:
    """Outcome for one entity; ``error`` is Kafka's error name, ``"NONE"`` for success."""

    entity_type: str
    entity_name: str
    error_code: int
    error: str
    message: str

    @classmethod
    def from_proto(cls, result: admin_pb2.ConfigResult) -> "ConfigResult":
        return cls(
            entity_type=result.entity_type,
            entity_name=result.entity_name,
            error_code=result.error_code,
            error=error_name(result.error_code),
            message=result.error_message,
        )

    @property
    def ok(self) -> bool:
        return self.error_code == errors_pb2.NONE
