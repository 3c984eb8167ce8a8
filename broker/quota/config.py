"""How long brokers remember what clients used, for their quotas."""

from typing import Final

from metadata_log.configuration import ConfigKey

CONTROLLER_QUOTA_WINDOW_NUM: Final = ConfigKey(
    name="controller.quota.window.num",
    type=int,
    default=11,
    at_least=1,
    doc="Windows that a burst of controller mutations may fill at once (Q8).",
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS: Final = ConfigKey(
    name="controller.quota.window.size.seconds",
    type=int,
    default=1,
    at_least=1,
    doc="Length of a window of controller mutations.",
)
QUOTA_WINDOW_NUM: Final = ConfigKey(
    name="quota.window.num",
    type=int,
    default=11,
    at_least=1,
    doc="Windows over which clients' bytes and request times are counted.",
)
QUOTA_WINDOW_SIZE_SECONDS: Final = ConfigKey(
    name="quota.window.size.seconds",
    type=int,
    default=1,
    at_least=1,
    doc="Length of a window of clients' bytes and request times.",
)
