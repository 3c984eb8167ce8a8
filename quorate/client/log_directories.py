"""Asks running brokers for their log directories over the Kafka protocol (DescribeLogDirs, 35)."""

import functools
from dataclasses import dataclass
from typing import Final

from quorate.client.bootstrap import Reader, discover
from quorate.client.kafka_request import NO_TAGS, NULL, ask_flexible, check, int64, items_of
from quorate.client.security import ClientSecurity

_DESCRIBE_LOG_DIRS: Final = (35, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """A log directory of a broker. Sizes are in bytes, and -1 where the broker does not know."""

    broker_id: int
    path: str
    error_code: int
    """0, or KAFKA_STORAGE_ERROR if it is offline or full, or has a damaged log."""
    replicas: int
    moving_here: int
    """The number of replicas that are being moved into this directory (KIP-113)."""
    size_bytes: int
    total_bytes: int
    usable_bytes: int


def describe_log_directories(
    bootstrap_servers: str, security: ClientSecurity, timeout_ms: int
) -> list[LogDirectory]:
    """Return the log directories of all live brokers, in the order of their ids.

    Raises:
        RequestFailed: the user may not describe the cluster.
        BootstrapError, LoginFailed: a broker does not answer, or does not let the user in.
    """
    cluster = discover(bootstrap_servers, timeout_ms=timeout_ms, security=security)
    found: list[LogDirectory] = []
    for broker in sorted(cluster.brokers, key=lambda one: one.broker_id):
        found += ask_flexible(
            broker.kafka,
            _DESCRIBE_LOG_DIRS,
            NULL + NO_TAGS,
            functools.partial(_read, broker.broker_id),
            timeout_ms=timeout_ms,
            security=security,
        )
    return found


def _read(broker_id: int, reader: Reader) -> list[LogDirectory]:
    check(reader.int16(), f"describing the log directories of broker {broker_id}")
    return [_read_directory(reader, broker_id) for _ in items_of(reader)]


def _read_directory(reader: Reader, broker_id: int) -> LogDirectory:
    error_code, path = reader.int16(), reader.string()
    sizes: list[int] = []
    moving_here = 0
    for _ in items_of(reader):
        reader.string()
        for _ in items_of(reader):
            reader.int32()
            size_bytes, _ = int64(reader), int64(reader)
            is_future = bool(reader.take(1)[0])
            moving_here += is_future
            sizes.append(size_bytes)
    return LogDirectory(
        broker_id=broker_id,
        path=path,
        error_code=error_code,
        replicas=len(sizes) - moving_here,
        moving_here=moving_here,
        size_bytes=sum(sizes),
        total_bytes=int64(reader),
        usable_bytes=int64(reader),
    )
