"""What every record is built on."""

from typing import ClassVar

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False, kw_only=True, array_like=True):
    """Base of all records: immutable, compared by value, outside the cyclic garbage collector."""

    SECRETS: ClassVar[frozenset[str]] = frozenset()
    """Fields that nobody is shown: neither in logs and tracebacks nor by commands."""

    def __repr__(self) -> str:
        fields = (
            f"{name}={'<secret>' if name in self.SECRETS else repr(getattr(self, name))}"
            for name in self.__struct_fields__
        )
        return f"{type(self).__name__}({', '.join(fields)})"
