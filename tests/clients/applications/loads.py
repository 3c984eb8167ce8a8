"""Work that goes on in the background while an application is disturbed."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_background(work: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Run ``work`` in a thread of that name, which goes on until its event is set, and wait for its
    end."""
    is_over = threading.Event()
    thread = threading.Thread(target=work, args=(is_over,), name=name)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
