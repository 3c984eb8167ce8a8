"""Which requests of a connection wait for which (decision 56)."""

import pytest

from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.requests import Api

PIPELINED = {
    "produce",
    "fetch",
    "metadata",
    "api_versions",
    "find_coordinator",
    "offset_commit",
    "heartbeat",
    "get_telemetry_subscriptions",
    "push_telemetry",
}
"""The APIs whose requests are frequent, and overlap."""

READING = ("describe_", "list_")
"""The beginnings of the names of APIs that change nothing."""

CHANGING = ("create_", "delete_", "alter_", "incremental_alter_", "update_")


def test_only_frequent_requests_overlap() -> None:
    assert {api.name for api in api_table().values() if api.is_pipelined} == PIPELINED


@pytest.mark.parametrize("api", api_table().values(), ids=lambda api: api.name)
def test_nobody_waits_for_a_request_that_only_reads(api: Api) -> None:
    if api.name.startswith(READING):
        assert not api.changes_state
    if api.name.startswith(CHANGING):
        assert api.changes_state
