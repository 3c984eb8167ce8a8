"""Returns the fetch state of a hosted partition."""

from quorate.broker.replication.fetching.fetch_session_handler import FetchSessionHandler
from quorate.broker.replication.fetching.partition_fetch_state import PartitionFetchState
from quorate.broker.replication.hosting.hosted_partition import HostedPartition


def fetch_state_of(hosted: HostedPartition) -> PartitionFetchState | None:
    """Return the state of a partition that follows a leader, or None for any other one."""
    handler = hosted.fetcher
    if handler is None:
        return None
    assert isinstance(handler, FetchSessionHandler)
    return handler.state_of(hosted)


def followed(hosted: HostedPartition) -> PartitionFetchState:
    """Return the state of a partition that follows a leader."""
    state = fetch_state_of(hosted)
    assert state is not None, f"{hosted.tp} follows nobody"
    return state
