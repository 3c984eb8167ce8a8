"""What the recordings of one trip say: which files the request passes through, and how often.

A window is one recording of one process: calls and returns of the product's functions, in the
order in which they happened. One trip has many windows. A file counts if at least ``least`` of the
windows entered it, so that background work that falls into a single window does not count.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any, NamedTuple


class Function(NamedTuple):
    """A function of the product; ``file`` is its path in the repository."""

    file: str
    name: str


class Event(NamedTuple):
    """A frame that a thread enters or leaves; ``function`` None: leaves."""

    thread: str
    function: Function | None
    frame: int


@dataclass(slots=True)
class Visit:
    """One file in one window: calls of its functions, and which file called one first."""

    caller: str
    calls: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Passage:
    """One window: its files in the order of their first entry, and the moves between files."""

    visits: Mapping[str, Visit]
    moves: int


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file that a trip passes through; calls are medians over the windows."""

    file: str
    caller: str
    calls: int
    functions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a trip does in one process: its files in the order of their first entry."""

    rows: tuple[FileRow, ...]
    moves: int


def read_window(recorded: Mapping[str, Any]) -> list[Event]:
    """The events in what a probe has recorded."""
    functions = [Function(file, name) for file, name in recorded["functions"]]
    threads = {int(ident): name for ident, name in recorded["threads"].items()}
    return [
        Event(
            thread=threads.get(thread, f"ended thread {thread}"),
            function=None if function is None else functions[function],
            frame=frame,
        )
        for thread, function, frame in recorded["events"]
    ]


def follow(events: Iterable[Event]) -> Passage:
    """Follows each thread from file to file.

    A thread executes the file of the innermost frame that it entered in this window. It moves when
    a call or a return brings it to another file than the one it executed last. Frames that the
    thread entered before the window do not count: the main loop of the process is one of them.
    A coroutine enters its frame again each time it goes on after an ``await``.
    """
    stacks: dict[str, list[tuple[int, str]]] = defaultdict(list)
    executing: dict[str, str] = {}
    visits: dict[str, Visit] = {}
    moves = 0
    for event in events:
        stack = stacks[event.thread]
        if event.function is not None:
            file, name = event.function
            caller = stack[-1][1] if stack else f"({event.thread})"
            visits.setdefault(file, Visit(caller)).calls[name] += 1
            stack.append((event.frame, file))
        else:
            _leave(stack, event.frame)
        if stack:
            file = stack[-1][1]
            moves += executing.setdefault(event.thread, file) != file
            executing[event.thread] = file
    return Passage(visits, moves)


def _leave(stack: list[tuple[int, str]], frame: int) -> None:
    """Removes the frame, and what is above it; a frame from before the window is not there."""
    for depth in range(len(stack) - 1, -1, -1):
        if stack[depth][0] == frame:
            del stack[depth:]
            return


def summarise(passages: Sequence[Passage], least: int) -> Summary:
    """The files that at least ``least`` of the windows entered, and the median of the moves."""
    visits: dict[str, list[Visit]] = defaultdict(list)
    places: dict[str, list[int]] = defaultdict(list)
    for passage in passages:
        for place, (file, visit) in enumerate(passage.visits.items()):
            visits[file].append(visit)
            places[file].append(place)
    files = [file for file in visits if len(visits[file]) >= least]
    files.sort(key=lambda file: (median_low(places[file]), file))
    rows = tuple(_row(file, visits[file], least) for file in files)
    return Summary(rows, median_low(passage.moves for passage in passages))


def _row(file: str, visits: Sequence[Visit], least: int) -> FileRow:
    """The median of every function's calls over the windows that entered the file."""
    entered = Counter(name for visit in visits for name in visit.calls)
    functions = tuple(
        (name, max(1, median_low(visit.calls[name] for visit in visits)))
        for name, windows in entered.items()
        if windows >= least
    )
    callers = Counter(visit.caller for visit in visits)
    return FileRow(
        file=file,
        caller=callers.most_common(1)[0][0],
        calls=median_low(visit.calls.total() for visit in visits),
        functions=functions,
    )


def files_of(summaries: Iterable[Summary]) -> set[str]:
    """The files of all processes of a trip; a file in two processes counts once."""
    return {row.file for summary in summaries for row in summary.rows}


def more_than_half(windows: int) -> int:
    """The least number of windows that is more than half of them."""
    return windows // 2 + 1
