"""An executor without threads."""

from concurrent.futures import Executor, Future
from typing import Any


class AtOnce(Executor):
    """Runs what it is given at once, on the caller's thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future has it
            done.set_exception(error)
        return done
