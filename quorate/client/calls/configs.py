"""Configurations of topics and brokers."""

from collections.abc import Sequence

from quorate.client.results import ConfigChange, ConfigResult
from quorate.client.steps import Steps, ToController
from quorate_proto.v1 import admin_pb2


def alter_configs(changes: Sequence[ConfigChange]) -> Steps[list[ConfigResult]]:
    """Set and remove configuration keys; one result per entity, in order."""
    request = admin_pb2.IncrementalAlterConfigsRequest(
        changes=[change.to_proto() for change in changes]
    )
    answer: admin_pb2.IncrementalAlterConfigsResponse = yield ToController(
        "IncrementalAlterConfigs", request, "changing configurations"
    )
    return [ConfigResult.from_proto(result) for result in answer.results]
