"""The connection options, which all queries share.

They choose the cluster, the identity, the retries, and which records of transactions are seen.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.client.security import Securities
from quorate.spark.errors import OptionError
from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.option_table import (
    BOOTSTRAP_SERVERS,
    ISOLATION_LEVEL,
    READ_COMMITTED,
    RETRIES_MAX,
    RETRY_INTERVAL_MS,
)
from quorate.spark.retries import RetryPolicy

if TYPE_CHECKING:
    from quorate.spark.cluster_client import ClusterClient


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The options of a connection to a cluster. The object travels to the executors by pickle."""

    bootstrap_servers: str
    security: Securities = Securities()  # noqa: RUF009 - frozen
    retries_max: int = RETRIES_MAX.default
    retry_interval_ms: int = RETRY_INTERVAL_MS.default
    committed_only: bool = True
    """True if topics end at their first open transaction, and aborted transactions are left out."""

    @property
    def retry_policy(self) -> RetryPolicy:
        """The budget of tries of each call."""
        return RetryPolicy(self.retries_max, self.retry_interval_ms)

    def open(self) -> "ClusterClient":
        """Open a client; close it, or use it as a context manager."""
        # gRPC must not be loaded before Spark forks its workers.
        from quorate.spark.cluster_client import ClusterClient

        return ClusterClient(
            self.bootstrap_servers,
            self.retry_policy,
            self.security,
            committed_only=self.committed_only,
        )


def read_connection_options(given: GivenOptions) -> ConnectionOptions:
    """Check the options of a connection.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    servers = given[BOOTSTRAP_SERVERS]
    if servers is None:
        raise OptionError(f"option {BOOTSTRAP_SERVERS.name} is missing: give it as 'host:port,…'")
    return ConnectionOptions(
        servers,
        given.securities(),
        given[RETRIES_MAX],
        given[RETRY_INTERVAL_MS],
        given[ISOLATION_LEVEL] == READ_COMMITTED,
    )
