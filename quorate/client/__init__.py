"""The controller-direct client: administration over gRPC.

Imports nothing but ``quorate_proto``, and loads gRPC only when ``AdminClient`` is used: a Spark
executor forks before it may load gRPC.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient as AdminClient

__all__ = ["AdminClient"]


def __getattr__(name: str) -> object:
    if name == "AdminClient":
        from quorate.client.admin import AdminClient

        return AdminClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
