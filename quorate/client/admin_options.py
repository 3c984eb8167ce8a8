"""Options for the retries of an admin client: Kafka's own, and one that KIP-599 proposes, beside
those of ``quorate.client.security``.

    default.api.timeout.ms      time for one call with all its retries, in ms; default: 30000
    retry.on.quota.violation    true (default), or false: what is over a quota is refused at once
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.client.security import InvalidOption

DEFAULT_TIMEOUT_MS: Final = 30_000

_TIMEOUT: Final = "default.api.timeout.ms"
_RETRY: Final = "retry.on.quota.violation"
_BOOLEANS: Final = {"true": True, "false": False}


class AdminOptions(NamedTuple):
    """Checked options of an admin client, and the options that are left for its security."""

    timeout_ms: int
    retry_on_quota_violation: bool
    others: Mapping[str, str]


def read_admin_options(
    options: Mapping[str, str],
    *,
    timeout_ms: int | None = None,
    retry_on_quota_violation: bool | None = None,
) -> AdminOptions:
    """Return the options; an argument that is not None goes before the option of its name.

    Raises:
        InvalidOption: a value makes no sense.
    """
    given_timeout = options.get(_TIMEOUT, str(DEFAULT_TIMEOUT_MS))
    if not given_timeout.isascii() or not given_timeout.isdigit() or int(given_timeout) < 1:
        raise InvalidOption(f"{_TIMEOUT}={given_timeout}: must be a number of ms above 0")
    given_retry = options.get(_RETRY, "true").lower()
    if given_retry not in _BOOLEANS:
        raise InvalidOption(f"{_RETRY}={given_retry}: must be true or false")
    if retry_on_quota_violation is None:
        retry_on_quota_violation = _BOOLEANS[given_retry]
    return AdminOptions(
        timeout_ms=int(given_timeout) if timeout_ms is None else timeout_ms,
        retry_on_quota_violation=retry_on_quota_violation,
        others={name: value for name, value in options.items() if name not in (_TIMEOUT, _RETRY)},
    )
