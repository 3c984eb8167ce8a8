"""The configuration keys of a client metrics subscription (KIP-714): which metrics clients push,
how often, and which clients.
"""

import re
from typing import Final

from quorate.common.configuration import ConfigError, ConfigKey, ConfigSpec, list_items

CLIENT_METRICS: Final = "client-metrics"
"""The entity type of subscriptions in the metadata log."""

ALL_METRICS: Final = "*"

MATCH_ATTRIBUTES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The attributes of a client that ``match`` may name."""


class MatchKey(ConfigKey[str], frozen=True, kw_only=True, eq=False):
    """The key ``match``, whose items must be attributes with valid regular expressions."""

    def parse(self, value: object) -> str:
        text = super().parse(value)
        match_patterns(text)
        return text


SUBSCRIPTION_METRICS: Final = ConfigKey(
    name="metrics",
    type=str,
    default="",
    is_list=True,
    doc="Prefixes of the names of metrics that clients push, with commas between. * is all "
    "metrics, and an empty list is none.",
)
SUBSCRIPTION_INTERVAL_MS: Final = ConfigKey(
    name="interval.ms",
    type=int,
    default=300_000,
    at_least=100,
    at_most=3_600_000,
    doc="How often a client pushes its metrics. If several subscriptions match a client, the "
    "shortest interval holds.",
)
SUBSCRIPTION_MATCH: Final = MatchKey(
    name="match",
    type=str,
    default="",
    is_list=True,
    doc="The clients that the subscription is for: attribute=regular expression, with commas "
    f"between. All must match. The attributes are {', '.join(MATCH_ATTRIBUTES)}. Empty: all "
    "clients.",
)

CLIENT_METRICS_SPEC: Final = ConfigSpec(
    "client metrics", [SUBSCRIPTION_METRICS, SUBSCRIPTION_INTERVAL_MS, SUBSCRIPTION_MATCH]
)


def match_patterns(text: str) -> dict[str, re.Pattern[str]]:
    """Return the regular expression of each attribute that ``match`` names. The last one of an
    attribute counts, as in Kafka.

    Raises:
        ConfigError: an item is not ``attribute=regular expression``.
    """
    patterns = {}
    for item in list_items(text):
        attribute, equals, expression = (part.strip() for part in item.partition("="))
        if not equals or not expression or "=" in expression or attribute not in MATCH_ATTRIBUTES:
            raise ConfigError(
                f"{SUBSCRIPTION_MATCH.name}: {item} must be attribute=regular expression, with one "
                f"of the attributes {', '.join(MATCH_ATTRIBUTES)}"
            )
        try:
            patterns[attribute] = re.compile(expression)
        except re.error as error:
            raise ConfigError(
                f"{SUBSCRIPTION_MATCH.name}: {expression} is no regular expression: {error}"
            ) from error
    return patterns
