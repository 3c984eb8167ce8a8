"""The keys of delegation tokens, with Kafka's names and defaults (KIP-48)."""

from typing import Final

from quorate.common.configuration import ConfigKey

DELEGATION_TOKEN_SECRET_KEY: Final = ConfigKey(
    name="delegation.token.secret.key",
    type=str,
    default="",
    doc="The key from which the secrets of delegation tokens are made. It must be the same on all "
    "brokers. If neither it nor delegation.token.secret.key.file is set, there are no "
    "delegation tokens.",
    sensitive=True,
)
DELEGATION_TOKEN_SECRET_KEY_FILE: Final = ConfigKey(
    name="delegation.token.secret.key.file",
    type=str,
    default="",
    doc="A file of keys for delegation tokens, one on each line, newest first. New tokens are "
    "made with the first key; tokens made with the others stay valid. The file is read again "
    "whenever it changes. The key of delegation.token.secret.key, if set, comes after those "
    "of the file.",
)
DELEGATION_TOKEN_MAX_LIFETIME_MS: Final = ConfigKey(
    name="delegation.token.max.lifetime.ms",
    type=int,
    default=7 * 24 * 3_600_000,
    at_least=1,
    at_most=2**63 - 1,
    doc="A delegation token ends after this time, however often it is renewed.",
)
DELEGATION_TOKEN_EXPIRY_TIME_MS: Final = ConfigKey(
    name="delegation.token.expiry.time.ms",
    type=int,
    default=24 * 3_600_000,
    at_least=1,
    at_most=2**63 - 1,
    doc="A delegation token that is not renewed ends after this time.",
)
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS: Final = ConfigKey(
    name="delegation.token.expiry.check.interval.ms",
    type=int,
    default=3_600_000,
    at_least=1,
    at_most=2**31 - 1,
    doc="How often the controller removes delegation tokens that have ended.",
)
