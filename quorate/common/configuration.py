"""Configuration keys: each declared once, with type, default, range and a line of documentation.

A ``Configuration`` is a frozen set of values for one ``ConfigSpec``. Unknown keys, wrong types and
values out of range are refused with the key, the value and what would be right.
"""

import difflib
import enum
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import msgspec

from quorate.common.types import Endpoint

T = TypeVar("T", int, float, str, bool)


class ConfigError(ValueError):
    """A configuration is invalid; the message names the key, the value and what would be right."""


class Update(enum.Enum):
    """The way in which a key may change while brokers run: Kafka's update modes."""

    READ_ONLY = "read-only"
    """The key may only be set in the file: a change takes a restart."""
    PER_BROKER = "per-broker"
    """The key may change for one broker at a time, never for all of them."""
    CLUSTER_WIDE = "cluster-wide"
    """The key may change for all brokers, or for one of them."""


class ConfigKey(msgspec.Struct, Generic[T], frozen=True, kw_only=True, eq=False):
    """One configuration key. A key whose ``default`` is None is required."""

    name: str
    type: type[T]
    doc: str
    default: T | None = None
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression that the whole text must match; ``form`` describes it in words."""
    form: str = ""
    update: Update = Update.READ_ONLY
    is_list: bool = False
    """Whether the value is a list of items separated by commas, which can be added and removed
    singly.
    """
    sensitive: bool = False
    """Whether the value is a secret, which is never shown or logged."""
    coarser: tuple["KeyInLargerUnit", ...] = ()
    """Other names of the key in larger units. They are used where the file lacks this key, the
    first name before the next.
    """

    @property
    def required(self) -> bool:
        return self.default is None

    def parse(self, value: object) -> T:
        """Return the typed value of ``value``, which is a string (command line) or typed already
        (TOML).

        Raises:
            ConfigError: of another type, or out of range.
        """
        typed: Any = self._converted(value)
        shown = self._shown(value)
        if self.at_least is not None and typed < self.at_least:
            raise ConfigError(f"{shown}: must be at least {self.at_least:g}")
        if self.at_most is not None and typed > self.at_most:
            raise ConfigError(f"{shown}: must be at most {self.at_most:g}")
        if self.one_of and typed not in self.one_of:
            raise ConfigError(f"{shown}: must be one of {', '.join(self.one_of)}")
        if self.pattern and not re.fullmatch(self.pattern, str(typed), re.ASCII):
            raise ConfigError(f"{shown}: must be {self.form}")
        return cast("T", typed)

    def _shown(self, value: object) -> str:
        return self.name if self.sensitive else f"{self.name}={value}"

    def _converted(self, value: object) -> object:
        wanted: Any = self.type
        if wanted is bool:
            word = str(value).strip().lower()
            if word not in ("true", "false"):
                raise ConfigError(f"{self._shown(value)}: must be true or false")
            return word == "true"
        if isinstance(value, bool):
            raise ConfigError(f"{self._shown(value)}: must be {_KIND[wanted]}")
        try:
            return wanted(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self._shown(value)}: must be {_KIND[wanted]}") from error


class KeyInLargerUnit(msgspec.Struct, frozen=True):
    """A key of whole numbers in a larger unit: ``factor`` times that of the finer key. -1 is -1 in
    both.
    """

    key: ConfigKey[int]
    factor: int

    def in_finer_units(self, value: int) -> int:
        return value if value < 0 else value * self.factor


_KIND: dict[type, str] = {int: "a whole number", float: "a number", str: "text"}


def declared(module: ModuleType) -> list[ConfigKey[Any]]:
    """Return the keys that ``module`` declares, in the order of their declaration."""
    return [value for value in vars(module).values() if isinstance(value, ConfigKey)]


def as_text(value: object) -> str:
    """Return a typed value as it is stored and shown; ``parse`` reads it back."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def list_items(text: str) -> list[str]:
    """Return the items of a list as it is written: separated by commas, with blanks around them
    allowed.
    """
    return [item.strip() for item in text.split(",") if item.strip()]


LOG_LEVEL: Final = ConfigKey(
    name="log.level",
    type=str,
    default="INFO",
    one_of=("DEBUG", "INFO", "WARNING", "ERROR"),
    doc="How much is logged.",
)


class ConfigSpec:
    """The keys that one kind of process, or of entity, understands."""

    def __init__(self, what: str, keys: Iterable[ConfigKey[Any]]) -> None:
        """
        Raises:
            ValueError: two keys have one name.
        """
        self.what = what
        self._keys: dict[str, ConfigKey[Any]] = {}
        for key in keys:
            if key.name in self._keys:
                raise ValueError(f"{what} configuration key {key.name} is declared twice")
            self._keys[key.name] = key

    def __iter__(self) -> Iterator[ConfigKey[Any]]:
        return iter(self._keys.values())

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def key(self, name: str) -> ConfigKey[Any]:
        """Return the key of that name.

        Raises:
            ConfigError: unknown; names the nearest known key.
        """
        found = self._keys.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self._keys, n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise ConfigError(f"unknown {self.what} configuration key {name!r}{hint}")
        return found

    def parse(self, values: Mapping[str, object]) -> "Configuration":
        """Return typed values of all keys, with defaults filled in.

        Raises:
            ConfigError: a key is unknown or missing, or a value is wrong.
        """
        given = {name: self.key(name).parse(value) for name, value in values.items()}
        missing = [key.name for key in self if key.required and key.name not in given]
        if missing:
            raise ConfigError(f"missing {self.what} configuration: {', '.join(missing)}")
        everything = {key.name: given.get(key.name, key.default) for key in self}
        return Configuration(self, everything, frozenset(given))


class Values(Protocol):
    """Values by key: a ``Configuration``, or values that may change between two reads."""

    def __getitem__(self, key: ConfigKey[T]) -> T: ...


class Configuration:
    """Frozen values of a ``ConfigSpec``: ``configuration[KEY]`` has the key's type.

    ``given`` holds the names of the keys that were set; the others have their defaults.
    """

    def __init__(
        self, spec: ConfigSpec, values: Mapping[str, object], given: frozenset[str]
    ) -> None:
        self.spec = spec
        self.given = given
        self._values = dict(values)

    def __getitem__(self, key: ConfigKey[T]) -> T:
        return cast("T", self._values[key.name])

    def items(self) -> Iterable[tuple[str, object]]:
        return self._values.items()


def parse_endpoint(key: str, value: str) -> Endpoint:
    """Parse ``host:port`` (or ``PROTOCOL://host:port``).

    Raises:
        ConfigError: not of that form.
    """
    host, colon, port = value.rpartition("://")[2].rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 <= int(port) <= 65_535:
        raise ConfigError(f"{key}={value}: must be host:port, with a port from 0 to 65535")
    return Endpoint(host, int(port))


# Configuration files of voters and brokers are TOML; dotted keys are read as flat names.


def read_toml(path: Path) -> dict[str, Any]:
    """Return the keys of a TOML file, flat: ``"broker.id" = 1`` and ``broker.id = 1`` mean the
    same.

    Raises:
        ConfigError: the file is missing or malformed.
    """
    try:
        return dict(_flattened("", tomllib.loads(path.read_text(encoding="utf-8"))))
    except OSError as error:
        raise ConfigError(f"cannot read configuration file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {path} is not TOML: {error}") from error


def _flattened(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flattened(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
