"""The options that a user gave for one query.

Unknown options are refused, and options without effect are reported by a warning.
"""

import difflib
import logging
from collections.abc import Mapping
from typing import TypeVar

from quorate.client.security import Securities
from quorate.spark.errors import OptionError
from quorate.spark.options.client_settings import (
    PREFIX,
    check_client_settings,
    is_known_setting,
    known_settings,
    securities_of,
)
from quorate.spark.options.option_declaration import Option, Scope
from quorate.spark.options.option_table import OPTIONS
from quorate.spark.options.spark_properties import own_options

T = TypeVar("T")

_METADATA = frozenset({Scope.METADATA})
_logger = logging.getLogger(__name__)


class GivenOptions:
    """The options of one query. The names are case-insensitive, as everywhere in Spark."""

    def __init__(self, options: Mapping[str, str], scope: Scope | None) -> None:
        """
        Args:
            options: the options as the user gave them.
            scope: the kind of query; None if it is not known yet, and any option may have an
                effect.

        Raises:
            OptionError: an option is unknown, or this kind of query refuses it.
        """
        self.scope = scope
        self._texts = own_options(options, scope)
        self._declared = _declared_for(scope)
        self._client_settings = {
            key.removeprefix(PREFIX): value
            for key, value in self._texts.items()
            if key.startswith(PREFIX) and key not in self._declared
        }
        self._refuse_unknown()
        self._check_scopes(check_client_settings(self._client_settings))

    def __getitem__(self, option: Option[T]) -> T:
        """Return the given value of an option, or its default.

        Raises:
            OptionError: names the option, its value and what it may be.
        """
        for name in option.names:
            if (text := self._texts.get(name.lower())) is not None:
                return option.kind.parse(name, text)
        return option.default

    def has(self, option: Option[object]) -> bool:
        """Return True if the option was given."""
        return any(name.lower() in self._texts for name in option.names)

    def securities(self) -> Securities:
        """Return the security settings: ``kafka.security.protocol``, ``kafka.ssl.…`` and so on."""
        return securities_of(self._client_settings)

    def _refuse_unknown(self) -> None:
        for key in self._texts:
            if key not in self._declared and not is_known_setting(key):
                names = [name for option in self._declared.values() for name in option.names]
                known = {name.lower(): name for name in (*names, *known_settings())}
                nearest = difflib.get_close_matches(key, known, n=1, cutoff=0)[0]
                raise OptionError(f"unknown option {key!r}: did you mean {known[nearest]!r}?")

    def _check_scopes(self, without_effect: list[str]) -> None:
        """Refuse options for another kind of query, or warn that they have no effect."""
        if self.scope is None:
            return
        for key in self._texts:
            option = self._declared.get(key)
            if option is None or self.scope in option.scopes:
                continue
            if self.scope in option.refused_in:
                raise OptionError(
                    f"option {option.name} is not for a {self.scope.query}: {_why(option)}"
                )
            without_effect.append(option.name)
        for name in without_effect:
            _logger.warning("option %s has no effect on a %s", name, self.scope.query)


def _declared_for(scope: Scope | None) -> dict[str, Option[object]]:
    """Return the options of one format by their names in lower case.

    The two formats do not know each other's options.
    """
    is_metadata = scope is Scope.METADATA
    return {
        name.lower(): option
        for option in OPTIONS
        if (Scope.METADATA in option.scopes if is_metadata else option.scopes != _METADATA)
        for name in option.names
    }


def _why(option: Option[object]) -> str:
    return f"only for a {' or a '.join(sorted(scope.query for scope in option.scopes))}"
