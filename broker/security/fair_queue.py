"""A bounded queue that serves addresses in turns, and the users of an address in turns.

Many logins from one address wait behind each other and not in front of others, and many attempts
at one user do not delay other users behind the same address. This module knows no clock, no thread
and no socket.
"""

from collections import OrderedDict
from typing import Final, Generic, TypeVar

T = TypeVar("T")

ADDRESS_WAITING_MAX: Final = 32
WAITING_MAX: Final = 512


class FairQueue(Generic[T]):
    """Items by address and user. A full queue drops the newest item of who has the most."""

    def __init__(
        self, waiting_max: int = WAITING_MAX, address_max: int = ADDRESS_WAITING_MAX
    ) -> None:
        self._waiting_max = waiting_max
        self._address_max = address_max
        self._addresses: OrderedDict[str, OrderedDict[str, dict[T, None]]] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def put(self, address: str, user: str, item: T) -> T | None:
        """Add an item. Return the item that is dropped for it, or None. That may be the new one."""
        users = self._addresses.setdefault(address, OrderedDict())
        users.setdefault(user, {})[item] = None
        self._counts[address] = self._counts.get(address, 0) + 1
        self._waiting += 1
        if self._counts[address] > self._address_max:
            return self._drop_newest(address)
        if self._waiting > self._waiting_max:
            return self._drop_newest(self._longest_but(address))
        return None

    def take(self) -> T:
        """Remove and return the next item. The queue must not be empty."""
        address, users = next(iter(self._addresses.items()))
        user, items = next(iter(users.items()))
        item = next(iter(items))
        users.move_to_end(user)
        self._addresses.move_to_end(address)
        self.remove(address, user, item)
        return item

    def remove(self, address: str, user: str, item: T) -> None:
        """Remove an item, unless it is gone already."""
        users = self._addresses.get(address, OrderedDict())
        items = users.get(user, {})
        if item not in items:
            return
        del items[item]
        self._waiting -= 1
        self._counts[address] -= 1
        if not items:
            del users[user]
        if not users:
            del self._addresses[address]
            del self._counts[address]

    def _longest_but(self, newest: str) -> str:
        """Return the address with the most items. Among equals it is the one that came last."""
        return max(self._counts, key=lambda one: (self._counts[one], one == newest))

    def _drop_newest(self, address: str) -> T:
        users = self._addresses[address]
        user = max(reversed(users), key=lambda one: len(users[one]))
        item = next(reversed(users[user]))
        self.remove(address, user, item)
        return item
