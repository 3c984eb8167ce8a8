"""Signs of life of a run, from a thread of its own: Spark may work for an hour on one batch."""

import logging
import threading
from collections.abc import Callable

from quorate.client.errors import QuorateError, RequestFailed
from quorate.pipeline.registry import FENCED

_logger = logging.getLogger(__name__)


class Lease:
    """Renews until it is closed; use it as a context manager.

    Losing it stops nobody: the run learns from its own commits whether it is in charge. It only
    learns sooner by ``lost``, which is called from the thread.
    """

    def __init__(
        self, renew: Callable[[], object], interval_s: float, lost: Callable[[], None]
    ) -> None:
        self._renew = renew
        self._interval_s = interval_s
        self._lost = lost
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew_for_ever, name="lease", daemon=True)

    def __enter__(self) -> "Lease":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()

    def _renew_for_ever(self) -> None:
        while not self._over.wait(self._interval_s):
            try:
                self._renew()
            except RequestFailed as error:
                _logger.warning("%s", error)
                if error.error == FENCED:
                    self._lost()
                    return
            except QuorateError as error:
                _logger.warning("the run's lease could not be renewed: %s", error)
