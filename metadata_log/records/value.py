"""The base class of every record."""

from typing import ClassVar

import msgspec


class MetadataValue(msgspec.Struct, frozen=True, gc=False, kw_only=True, array_like=True):
    """The base of all records: immutable, compared by value, outside the cyclic garbage
    collector.
    """

    SECRETS: ClassVar[frozenset[str]] = frozenset()
    """Fields that are never shown, neither in logs and tracebacks nor by commands."""

    def __repr__(self) -> str:
        fields = (
            f"{name}={'<secret>' if name in self.SECRETS else repr(getattr(self, name))}"
            for name in self.__struct_fields__
        )
        return f"{type(self).__name__}({', '.join(fields)})"
