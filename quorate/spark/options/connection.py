"""Which cluster, as whom, how patiently, and what of it is seen: the same for all queries."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.client.security import Securities
from quorate.spark.errors import OptionError
from quorate.spark.options.given import GivenOptions
from quorate.spark.options.table import (
    BOOTSTRAP_SERVERS,
    ISOLATION_LEVEL,
    READ_COMMITTED,
    RETRIES_MAX,
    RETRY_INTERVAL_MS,
)
from quorate.spark.retries import Retries

if TYPE_CHECKING:
    from quorate.spark.cluster import ClusterClient


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a cluster; travels to the executors by pickle."""

    bootstrap_servers: str
    security: Securities = Securities()  # noqa: RUF009 - frozen
    retries_max: int = RETRIES_MAX.default
    retry_interval_ms: int = RETRY_INTERVAL_MS.default
    committed_only: bool = True
    """Whether topics end at their first open transaction, and aborted ones are left out."""

    def new_retries(self) -> Retries:
        """A whole budget of tries."""
        return Retries(self.retries_max, self.retry_interval_ms)

    def open(self) -> "ClusterClient":
        """A client; close it, or use it as a context manager."""
        # gRPC must not be loaded before Spark forks its workers.
        from quorate.spark.cluster import ClusterClient

        return ClusterClient(
            self.bootstrap_servers,
            self.new_retries,
            self.security,
            committed_only=self.committed_only,
        )


def read_connection(given: GivenOptions) -> Connection:
    """
    Raises:
        OptionError: names the option, its value and what to do.
    """
    servers = given[BOOTSTRAP_SERVERS]
    if servers is None:
        raise OptionError(f"option {BOOTSTRAP_SERVERS.name} is missing: give it as 'host:port,…'")
    return Connection(
        servers,
        given.securities(),
        given[RETRIES_MAX],
        given[RETRY_INTERVAL_MS],
        given[ISOLATION_LEVEL] == READ_COMMITTED,
    )
