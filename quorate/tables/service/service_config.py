"""The file that describes a table service, in TOML. Each key is declared once, here.

tables.warehouse = "s3://lake/tables"

[catalog]                                  # of Iceberg, as pyiceberg takes it
type = "rest"
uri = "https://catalog:8181"

[storage]                                  # as pyiceberg takes it
s3.endpoint = "https://s3.example.com"

[spark]                                    # settings of Spark, with tables.master
cores.max = 8

[source]                                   # options of Spark's format "quorate", for all topics
maxOffsetsPerTrigger = 2000000
"""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quorate.common.configuration import ConfigError, ConfigKey, ConfigSpec, as_text, read_toml
from quorate.common.metrics.metrics_endpoint import METRICS_LISTENER

WAREHOUSE: Final = ConfigKey(
    name="tables.warehouse",
    type=str,
    default="",
    doc="The folder in which tables are whose topics do not say table.location.",
)
SERVICE_ID: Final = ConfigKey(
    name="tables.id",
    type=str,
    default="",
    pattern=r"[A-Za-z0-9._-]{0,100}",
    form="letters, digits, dots, dashes and underscores",
    doc="The name of this process. One that is restarted under its name goes on with its tables "
    "at once. Empty, a new name is made at each start.",
)
LOOK_INTERVAL_MS: Final = ConfigKey(
    name="tables.look.interval.ms",
    type=int,
    default=3_000,
    at_least=100,
    at_most=600_000,
    doc="The time between two looks at the configurations of topics.",
)
LEASE_MS: Final = ConfigKey(
    name="tables.lease.ms",
    type=int,
    default=10_000,
    at_least=1_000,
    at_most=3_600_000,
    doc="How long a process may be silent. After that, others take over its tables.",
)
THREADS: Final = ConfigKey(
    name="tables.threads",
    type=int,
    default=0,
    at_least=0,
    at_most=256,
    doc="How many partitions of a table are read at once; 0 is one for each core.",
)

MASTER: Final = ConfigKey(
    name="tables.master",
    type=str,
    default="",
    doc="Where Spark reads and writes batches of 500,000 offsets and more: local[2], "
    "spark://host:7077, yarn, k8s://…. Empty, the process does everything itself.",
)

_SPEC: Final = ConfigSpec(
    "table service",
    (WAREHOUSE, SERVICE_ID, LOOK_INTERVAL_MS, LEASE_MS, THREADS, MASTER, METRICS_LISTENER),
)
_PASSED_ON: Final = ("catalog.", "storage.", "source.", "spark.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """The checked content of a service's file, and the cluster that it serves."""

    bootstrap_servers: str
    security: Mapping[str, str]
    """The options of `quorate.client.security`."""
    warehouse: str
    service_id: str
    look_interval_ms: int
    lease_ms: int
    threads: int
    master: str
    """The URL of Spark's master; empty if there is no Spark."""
    metrics_listener: str
    catalog: Mapping[str, str]
    storage: Mapping[str, str]
    source: Mapping[str, str]
    spark: Mapping[str, str]
    """Settings of Spark, by their full names."""


def read_service_config(
    path: Path | None,
    *,
    bootstrap_servers: str,
    security: Mapping[str, str],
    settings: Mapping[str, str],
    defaults: Mapping[str, str] | None = None,
) -> ServiceConfig:
    """Read and check the file of a service, and settings that go before those of the file.

    Args:
        path: the file; None if there is none.
        bootstrap_servers: the cluster that is served.
        security: the options of `quorate.client.security`.
        settings: values that go before those of the file.
        defaults: values that those of the file go before.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown or wrong.
    """
    file = {} if path is None else read_toml(path)
    values: dict[str, object] = {**(defaults or {}), **file, **settings}
    try:
        own = _SPEC.parse({k: one for k, one in values.items() if not k.startswith(_PASSED_ON)})
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}" if path else str(error)) from error
    catalog, storage, source, spark = (
        {k.removeprefix(prefix): as_text(one) for k, one in values.items() if k.startswith(prefix)}
        for prefix in _PASSED_ON
    )
    return ServiceConfig(
        bootstrap_servers=bootstrap_servers,
        security=security,
        warehouse=own[WAREHOUSE],
        service_id=own[SERVICE_ID] or f"tables-{secrets.token_hex(6)}",
        look_interval_ms=own[LOOK_INTERVAL_MS],
        lease_ms=own[LEASE_MS],
        threads=own[THREADS] or os.cpu_count() or 1,
        master=own[MASTER],
        metrics_listener=own[METRICS_LISTENER],
        catalog=catalog,
        storage=storage,
        source=source,
        spark={f"spark.{name}": value for name, value in spark.items()},
    )
