"""The poller that the library, the transport and the driver share: epoll, and a wake-up call.

The library polls at the end of each of its ticks; here that does nothing. Only the driver waits, so
that it decides what happens between reading the sockets and the next tick (P16, P17).
"""

import os
import select
from collections.abc import Callable

from pysyncobj.poller import POLL_EVENT_TYPE

READ: int = POLL_EVENT_TYPE.READ
WRITE: int = POLL_EVENT_TYPE.WRITE
ERROR: int = POLL_EVENT_TYPE.ERROR

OnEvent = Callable[[int, int], None]
"""Called with the descriptor and the events (READ, WRITE, ERROR) it is ready for."""


class DrivenPoller:
    """A poller with the methods of the library's, and ``wait``. Use all but ``wake`` on
    one thread.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, OnEvent] = {}
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.subscribe(self._wake_fd, self._woken, READ)

    def subscribe(self, descr: int, callback: OnEvent, event_mask: int) -> None:
        """Call ``callback`` when the descriptor is ready; replaces an earlier subscription."""
        mask = select.EPOLLIN if event_mask & READ else 0
        if event_mask & WRITE:
            mask |= select.EPOLLOUT
        if descr in self._callbacks:
            self._epoll.modify(descr, mask)
        else:
            self._epoll.register(descr, mask)
        self._callbacks[descr] = callback

    def unsubscribe(self, descr: int) -> None:
        if self._callbacks.pop(descr, None) is not None:
            self._epoll.unregister(descr)

    def poll(self, timeout: float) -> None:
        """Do nothing: the library calls this at the end of a tick, and the driver waits."""

    def wait(self, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` for events, and handle them."""
        for descr, mask in self._epoll.poll(max(0.0, timeout_s)):
            callback = self._callbacks.get(descr)
            if callback is None:
                continue
            event = READ if mask & select.EPOLLIN else 0
            if mask & select.EPOLLOUT:
                event |= WRITE
            if mask & (select.EPOLLERR | select.EPOLLHUP):
                event |= ERROR
            callback(descr, event)

    def wake(self) -> None:
        """End the current or the next ``wait`` at once. From any thread."""
        os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        self.unsubscribe(self._wake_fd)
        os.close(self._wake_fd)
        self._epoll.close()

    def _woken(self, descr: int, event: int) -> None:
        os.eventfd_read(descr)
