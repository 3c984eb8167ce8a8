"""The delay before a client is told that its login failed.

It grows with the number of failed logins from the same address that are being delayed. So an
address that tries many passwords at once gets slower answers, and costs the broker little. Nothing
else counts: neither the delay nor the answer shows whether a user exists.
"""

import asyncio
from collections import Counter
from typing import Final

from quorate.common.network_address import network_of

STEP: Final = 16
"""The number of delayed logins of one address by which the delay grows once more."""

GROWTH_MAX: Final = 50


class FailedLogins:
    """The failed logins of one listener that are not answered yet."""

    def __init__(self) -> None:
        self._delayed: Counter[str] = Counter()

    async def delay(self, address: str, began_s: float, delay_ms: int) -> None:
        """Return when the failed login may be answered that began at ``began_s`` on the clock of
        the event loop. That is ``delay_ms`` later, or a multiple of it.
        """
        network = network_of(address)
        self._delayed[network] += 1
        growth = min(GROWTH_MAX, 1 + self._delayed[network] // STEP)
        left_s = began_s + growth * delay_ms / 1_000 - asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(max(0.0, left_s))
        finally:
            self._delayed[network] -= 1
            if not self._delayed[network]:
                del self._delayed[network]
