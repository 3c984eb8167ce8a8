"""The ports of the HTTP listeners of a local cluster: each broker needs one of its own, so port 0
in a setting stands for a port that is chosen for each and stays.
"""

from collections.abc import Callable, Mapping
from typing import Final

from quorate.broker.config.http_listeners import HTTP_LISTENERS

FIRST_PORT: Final = 8081
"""Where Confluent's registry listens."""
_ANY_PORT: Final = ":0"


def with_own_ports(
    settings: Mapping[str, object],
    claim: Callable[[], int],
    *,
    before: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Return settings of one broker, in which each HTTP listener with port 0 has a port of its own:
    the one that it had ``before``, or else one that ``claim`` chooses.
    """
    own = dict(settings)
    for key in HTTP_LISTENERS:
        url = str(settings.get(key.name, "")).rstrip("/")
        if url.endswith(_ANY_PORT):
            address = url.removesuffix(_ANY_PORT)
            kept = str((before or {}).get(key.name, ""))
            own[key.name] = kept if kept.startswith(f"{address}:") else f"{address}:{claim()}"
    return own
