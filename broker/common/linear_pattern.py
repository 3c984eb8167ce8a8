"""Regular expressions that match in time linear in the text, for patterns that clients choose.

Python's ``re`` tries one way after the other, so a pattern of a few characters can keep it busy for
hours. Here all ways are followed at the same time, character by character, as in RE2, which Kafka
uses for the same purpose (KIP-1152). There are no backreferences and no looking around, which do
not allow this.

Known are characters and ``.``, ``\\d \\D \\s \\S \\w \\W``, classes ``[a-z]`` and ``[^a-z]``,
groups ``( )`` and ``(?: )``, ``|``, ``* + ? {n} {n,} {n,m}`` also with ``?`` behind, ``^`` and
``$`` at the ends, ``\\Q…\\E`` and ``(?i)`` at the beginning. A text matches as a whole.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from quorate.broker.common.steps import Steps

STATES_MAX: Final = 1_000
"""The largest number of states of a pattern. Each character of a text may visit all of them."""
_DEPTH_MAX: Final = 50
_VISITS_IN_A_STEP: Final = 5_000
_UNBOUNDED: Final = -1
_REPEATED_MAX: Final = 1_000


class InvalidPattern(Exception):
    """A pattern that is no regular expression, or one that is too large."""


Test: TypeAlias = Callable[[str], bool]


class _Node(NamedTuple):
    """A state: goes on to ``ways`` for a character that passes ``test``, or without one if that is
    None."""

    test: Test | None
    ways: list[int]


_SPACES: Final = frozenset("\t\n\f\r ")
_WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_DIGITS: Final = frozenset("0123456789")
_CLASSES: Final[dict[str, Test]] = {
    "d": _DIGITS.__contains__,
    "s": _SPACES.__contains__,
    "w": _WORD.__contains__,
    "D": lambda char: char not in _DIGITS,
    "S": lambda char: char not in _SPACES,
    "W": lambda char: char not in _WORD,
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class LinearPattern:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        """Compile a pattern.

        Raises:
            InvalidPattern: it is none, or it needs more than ``STATES_MAX`` states.
        """
        self._nodes, self._first, self._last = _Compiler(pattern).compiled()

    def matching(self, text: str) -> Steps[bool]:
        """Return whether the whole text matches, in steps of bounded work."""
        present = self._reached([self._first])
        visits = 0
        for char in text:
            if not present:
                return False
            visits += len(present)
            if visits >= _VISITS_IN_A_STEP:
                visits = 0
                yield
            ways = [
                way
                for state in present
                if (test := self._nodes[state].test) is not None and test(char)
                for way in self._nodes[state].ways
            ]
            present = self._reached(ways)
        return self._last in present

    def _reached(self, states: list[int]) -> set[int]:
        """Return these states, and those that are reached from them without a character."""
        found = set(states)
        waiting = list(found)
        while waiting:
            node = self._nodes[waiting.pop()]
            if node.test is None:
                new = [way for way in node.ways if way not in found]
                found.update(new)
                waiting += new
        return found


class _Compiler:
    """Makes states of a pattern. A part is a pair of states, the first and the last of it."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern.removeprefix("(?i)")
        self._ignores_case = self._pattern != pattern
        self._at = 0
        self._depth = 0
        self._nodes: list[_Node] = []

    def compiled(self) -> tuple[list[_Node], int, int]:
        first, last = self._alternatives()
        if self._at < len(self._pattern):
            raise self._invalid("a parenthesis is closed that is not open")
        return self._nodes, first, last

    def _alternatives(self) -> tuple[int, int]:
        first, last = self._node(None), self._node(None)
        while True:
            begin, end = self._sequence()
            self._nodes[first].ways.append(begin)
            self._nodes[end].ways.append(last)
            if not self._takes("|"):
                return first, last

    def _sequence(self) -> tuple[int, int]:
        first = last = self._node(None)
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            if self._takes("^"):
                if self._at > 1 and self._pattern[self._at - 2] not in "(|:":
                    raise self._invalid("^ is not at the beginning")
                continue
            if self._takes("$"):
                if self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
                    raise self._invalid("$ is not at the end")
                continue
            for begin, end in self._repeated():
                self._nodes[last].ways.append(begin)
                last = end
        return first, last

    def _repeated(self) -> Iterator[tuple[int, int]]:
        """Yield an atom as often as its quantifier says; it is compiled anew each time."""
        begun_at = self._at
        part = self._atom()
        ended_at = self._at
        least, most = self._quantifier()
        goes_on_at = self._at

        def again() -> tuple[int, int]:
            self._at = begun_at
            found = self._atom()
            assert self._at == ended_at
            self._at = goes_on_at
            return found

        if (least, most) == (1, 1):
            yield part
            return
        for number in range(least):
            yield part if number == 0 else again()
        if most == _UNBOUNDED:
            yield self._loop(part if least == 0 else again())
        for number in range(least, most):
            yield self._maybe(part if number == 0 else again())

    def _loop(self, part: tuple[int, int]) -> tuple[int, int]:
        hub = self._node(None)
        self._nodes[hub].ways.append(part[0])
        self._nodes[part[1]].ways.append(hub)
        end = self._node(None)
        self._nodes[hub].ways.append(end)
        return hub, end

    def _maybe(self, part: tuple[int, int]) -> tuple[int, int]:
        first = self._node(None)
        self._nodes[first].ways.extend(part)
        return first, part[1]

    def _quantifier(self) -> tuple[int, int]:
        least, most = 1, 1
        if self._takes("*"):
            least, most = 0, _UNBOUNDED
        elif self._takes("+"):
            most = _UNBOUNDED
        elif self._takes("?"):
            least = 0
        elif self._takes("{"):
            least, most = self._bounds()
        else:
            return 1, 1
        self._takes("?")  # Fewest first: the same texts match.
        if self._at < len(self._pattern) and self._pattern[self._at] in "*+?{":
            raise self._invalid("two quantifiers follow each other")
        return least, most

    def _bounds(self) -> tuple[int, int]:
        end = self._pattern.find("}", self._at)
        low, comma, high = self._pattern[self._at : max(end, self._at)].partition(",")
        numbers = [low, high] if high else [low]
        if end < 0 or not all(each.isascii() and each.isdigit() for each in numbers):
            raise self._invalid("{ begins no number of repetitions")
        self._at = end + 1
        least = int(low[:6])
        most = int(high[:6]) if high else (_UNBOUNDED if comma else least)
        if least > _REPEATED_MAX or most > _REPEATED_MAX or (most < least and high):
            raise self._invalid(f"repetitions are from 0 to {_REPEATED_MAX}, the lower first")
        return least, most

    def _atom(self) -> tuple[int, int]:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._one(self._class())
        if char == ".":
            return self._one(lambda found: found != "\n")
        if char == "\\":
            return self._escaped()
        if char in "*+?{":
            raise self._invalid(f"{char} repeats nothing")
        return self._literal(char)

    def _group(self) -> tuple[int, int]:
        if self._takes("?") and not self._takes(":"):
            raise self._invalid("of groups that begin with ( and ? only (?: is known")
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._invalid(f"more than {_DEPTH_MAX} groups are inside one another")
        part = self._alternatives()
        self._depth -= 1
        if not self._takes(")"):
            raise self._invalid("a parenthesis is open at the end")
        return part

    def _escaped(self) -> tuple[int, int]:
        char = self._next()
        if char in _CLASSES:
            return self._one(_CLASSES[char])
        if char == "Q":
            return self._quoted()
        return self._literal(self._character(char))

    def _quoted(self) -> tuple[int, int]:
        end = self._pattern.find("\\E", self._at)
        text = self._pattern[self._at : end if end >= 0 else None]
        self._at = len(self._pattern) if end < 0 else end + 2
        first = last = self._node(None)
        for char in text:
            begin, last_of_it = self._literal(char)
            self._nodes[last].ways.append(begin)
            last = last_of_it
        return first, last

    def _character(self, escaped: str) -> str:
        """Return the character that this one means behind a backslash."""
        if escaped in _CONTROLS:
            return _CONTROLS[escaped]
        if escaped.isalnum():
            raise self._invalid(f"\\{escaped} is not known")
        return escaped

    def _class(self) -> Test:
        is_negated = self._takes("^")
        tests: list[Test] = []
        begun_at = self._at
        while not (self._peek() == "]" and self._at > begun_at):
            tests.append(self._class_item())
        self._at += 1
        return lambda char: any(test(char) for test in tests) is not is_negated

    def _class_item(self) -> Test:
        low = self._next()
        if low == "[" and self._peek() == ":":
            raise self._invalid("named classes are not known")
        if low == "\\":
            escaped = self._next()
            if escaped in _CLASSES:
                return _CLASSES[escaped]
            low = self._character(escaped)
        if self._peek() != "-" or self._pattern[self._at + 1 : self._at + 2] in ("]", ""):
            return self._test_of(low, low)
        self._at += 1
        high = self._next()
        high = self._character(self._next()) if high == "\\" else high
        if high < low:
            raise self._invalid(f"{low}-{high} ends before it begins")
        return self._test_of(low, high)

    def _literal(self, char: str) -> tuple[int, int]:
        return self._one(self._test_of(char, char))

    def _test_of(self, low: str, high: str) -> Test:
        if not self._ignores_case:
            return lambda char: low <= char <= high
        return lambda char: low <= char.lower() <= high or low <= char.upper() <= high

    def _one(self, test: Test) -> tuple[int, int]:
        end = self._node(None)
        begin = self._node(test)
        self._nodes[begin].ways.append(end)
        return begin, end

    def _node(self, test: Test | None) -> int:
        if len(self._nodes) >= STATES_MAX:
            raise self._invalid(f"it needs more than {STATES_MAX} states")
        self._nodes.append(_Node(test, []))
        return len(self._nodes) - 1

    def _peek(self) -> str:
        if self._at >= len(self._pattern):
            raise self._invalid("it is cut off")
        return self._pattern[self._at]

    def _next(self) -> str:
        char = self._peek()
        self._at += 1
        return char

    def _takes(self, char: str) -> bool:
        if not self._pattern.startswith(char, self._at):
            return False
        self._at += 1
        return True

    def _invalid(self, problem: str) -> InvalidPattern:
        return InvalidPattern(f"{problem}, at character {self._at}")
