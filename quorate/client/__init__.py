"""The client that administers a cluster over gRPC, directly at the controller.

It imports nothing but ``quorate_proto``, and loads gRPC only when ``AdminClient`` is used: a Spark
executor forks before it may load gRPC.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient as AdminClient
    from quorate.client.admin import AsyncAdminClient as AsyncAdminClient
    from quorate.client.errors import ClusterUnreachable as ClusterUnreachable
    from quorate.client.errors import QuorateError as QuorateError
    from quorate.client.errors import RequestFailed as RequestFailed
    from quorate.client.errors import (
        ThrottlingQuotaExceededError as ThrottlingQuotaExceededError,
    )
    from quorate.client.results import ClusterStatus as ClusterStatus
    from quorate.client.results import CreatePartitionsOptions as CreatePartitionsOptions
    from quorate.client.results import CreateTopicsOptions as CreateTopicsOptions
    from quorate.client.results import DeleteTopicsOptions as DeleteTopicsOptions
    from quorate.client.results import NewTopic as NewTopic
    from quorate.client.results import TopicInfo as TopicInfo
    from quorate.client.results import TopicResult as TopicResult

_MODULE_OF_NAME: Final = {
    "AdminClient": "admin",
    "AsyncAdminClient": "admin",
    "ClusterStatus": "results",
    "ClusterUnreachable": "errors",
    "CreatePartitionsOptions": "results",
    "CreateTopicsOptions": "results",
    "DeleteTopicsOptions": "results",
    "NewTopic": "results",
    "QuorateError": "errors",
    "RequestFailed": "errors",
    "ThrottlingQuotaExceededError": "errors",
    "TopicInfo": "results",
    "TopicResult": "results",
}

__all__ = [
    "AdminClient",
    "AsyncAdminClient",
    "ClusterStatus",
    "ClusterUnreachable",
    "CreatePartitionsOptions",
    "CreateTopicsOptions",
    "DeleteTopicsOptions",
    "NewTopic",
    "QuorateError",
    "RequestFailed",
    "ThrottlingQuotaExceededError",
    "TopicInfo",
    "TopicResult",
]


def __getattr__(name: str) -> object:
    """Load the module of a name on first use."""
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF_NAME[name]}"), name)
