"""The description of a table: its format and place, its partitions, and how it is reached."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quorate.common.configuration import ConfigError
from quorate.tables.partitioning import PartitionField
from quorate.tables.storage import absolute_location, is_local

ICEBERG: Final = "iceberg"
DELTA: Final = "delta"
FORMATS: Final = (ICEBERG, DELTA)
DEFAULT_NAMESPACE: Final = "default"
TARGET_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """One table."""

    format: str
    location: str
    """The table's folder, with its scheme."""
    name: str
    """``namespace.table`` in an Iceberg catalog."""
    partitioning: tuple[PartitionField, ...] = ()
    target_bytes: int = TARGET_BYTES
    compression: str = "zstd"
    catalog: Mapping[str, str] = field(default_factory=dict)
    """The properties of the Iceberg catalog, as pyiceberg takes them."""
    storage: Mapping[str, str] = field(default_factory=dict)
    """The properties of the storage, as pyiceberg takes them."""

    @property
    def identifier(self) -> tuple[str, ...]:
        """The parts of the name in the catalog."""
        return tuple(self.name.split("."))


def table_config(
    *,
    format: str,
    location: str,
    name: str,
    partitioning: tuple[PartitionField, ...] = (),
    target_bytes: int = TARGET_BYTES,
    compression: str = "zstd",
    catalog: Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None,
) -> TableConfig:
    """Return the description of a table, with what follows from the rest filled in.

    An Iceberg table without a catalog gets one in an SQLite file beside its folder: enough for one
    machine, and nothing to install.

    Raises:
        ConfigError: a catalog is needed, or the name is none.
    """
    root = absolute_location(location)
    identifier = name if "." in name else f"{DEFAULT_NAMESPACE}.{name}"
    if not all(identifier.split(".")):
        raise ConfigError(f"{name!r} is no name of a table: use NAMESPACE.TABLE")
    properties = dict(catalog or {})
    if format == ICEBERG and not {"uri", "type", "name"} & properties.keys():
        if not is_local(root):
            raise ConfigError(
                f"an Iceberg table at {root} needs a catalog: give catalog.uri and catalog.type "
                "(rest, sql, glue, hive), or catalog.name of one in .pyiceberg.yaml"
            )
        folder = root.rpartition("/")[0]
        properties["uri"] = f"sqlite:///{folder.removeprefix('file://')}/catalog.db"
    if properties.get("uri", "").startswith(("sqlite:", "postgresql")):
        properties.setdefault("type", "sql")
    return TableConfig(
        format=format,
        location=root,
        name=identifier,
        partitioning=partitioning,
        target_bytes=target_bytes,
        compression=compression,
        catalog=properties,
        storage=dict(storage or {}),
    )
