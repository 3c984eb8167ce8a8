"""Keys of delegation tokens; Kafka's names and defaults (KIP-48)."""

from typing import Final

from metadata_log.configuration import ConfigKey

DELEGATION_TOKEN_SECRET_KEY: Final = ConfigKey(
    name="delegation.token.secret.key",
    type=str,
    default="",
    doc="What the secrets of delegation tokens are made with, the same on all brokers; without it "
    "and without delegation.token.secret.key.file there are no tokens.",
    sensitive=True,
)
DELEGATION_TOKEN_SECRET_KEY_FILE: Final = ConfigKey(
    name="delegation.token.secret.key.file",
    type=str,
    default="",
    doc="File of such keys, one a line, newest first: new tokens are made with the first, those "
    "of the others stay good. Read again whenever it changes; delegation.token.secret.key, where "
    "it is set, comes after them.",
)
DELEGATION_TOKEN_MAX_LIFETIME_MS: Final = ConfigKey(
    name="delegation.token.max.lifetime.ms",
    type=int,
    default=7 * 24 * 3_600_000,
    at_least=1,
    at_most=2**63 - 1,
    doc="A token ends after this, however often it is renewed.",
)
DELEGATION_TOKEN_EXPIRY_TIME_MS: Final = ConfigKey(
    name="delegation.token.expiry.time.ms",
    type=int,
    default=24 * 3_600_000,
    at_least=1,
    at_most=2**63 - 1,
    doc="A token that is not renewed ends after this.",
)
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS: Final = ConfigKey(
    name="delegation.token.expiry.check.interval.ms",
    type=int,
    default=3_600_000,
    at_least=1,
    at_most=2**31 - 1,
    doc="How often the controller removes tokens that have ended.",
)
