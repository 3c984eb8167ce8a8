"""The last values of a group in the log, from which a new coordinator takes the group."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class RecordKey(Protocol):
    """The key of a record of a group. It can be hashed."""

    @property
    def kind(self) -> int:
        """The kind of value that the record has."""


Key = TypeVar("Key", bound=RecordKey)
Value = TypeVar("Value")


class StoredValues(Generic[Key, Value]):
    """The last value of each key of one group.

    ``read_value`` reads a value of a kind; it raises UnknownRecord if it has another format.
    """

    def __init__(self, read_value: Callable[[int, bytes], Value]) -> None:
        self.values: dict[Key, Value] = {}
        self._read_value = read_value

    def take(self, key: Key, value: bytes | None) -> None:
        """Take the next record of the log.

        Raises:
            UnknownRecord: the value has another format.
        """
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = self._read_value(key.kind, value)
