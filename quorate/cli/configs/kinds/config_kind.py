"""The interface of each kind of entity that ``quorate configs`` can describe and alter."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient

DEFAULT: Final = "<default>"
"""The name that stands for ``--entity-default``."""


class Entity(NamedTuple):
    """An entity type and the name that was given for it; a name of None means all entities of the
    type."""

    type: str
    name: str | None

    @property
    def is_default(self) -> bool:
        return self.name == DEFAULT


class ConfigKind(Protocol):
    """Shows and changes the configuration of one kind of entity."""

    def describe(
        self,
        admin: "AdminClient",
        entities: Sequence[Entity],
        *,
        everything: bool,
        as_json: bool,
    ) -> None:
        """Print the configuration; with ``everything``, also the keys that are not set.

        Raises:
            QuorateError: the request was refused, or no broker answers.
        """

    def alter(
        self,
        admin: "AdminClient",
        entities: Sequence[Entity],
        added: Mapping[str, str],
        deleted: Sequence[str],
    ) -> str:
        """Change the configuration of the one named entity, and return the line that reports it.

        Raises:
            click.UsageError: no entity is named.
            QuorateError: the request was refused, or no broker answers.
        """
