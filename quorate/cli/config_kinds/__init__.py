"""What ``quorate configs`` can describe and alter: one kind per set of entity types."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient

DEFAULT: Final = "<default>"
"""The name that ``--entity-default`` stands for."""


class Entity(NamedTuple):
    """An entity type with the name that was given for it; None: none, so all there are."""

    type: str
    name: str | None

    @property
    def is_default(self) -> bool:
        return self.name == DEFAULT


class Kind(Protocol):
    """How entities of one kind are shown and changed."""

    def describe(
        self,
        admin: "AdminClient",
        entities: Sequence[Entity],
        *,
        everything: bool,
        as_json: bool,
    ) -> None:
        """Print what is configured; ``everything``: what is not set, too.

        Raises:
            QuorateError: refused, or nobody answers.
        """

    def alter(
        self,
        admin: "AdminClient",
        entities: Sequence[Entity],
        added: Mapping[str, str],
        deleted: Sequence[str],
    ) -> str:
        """Change the one entity that is named; the line that says so.

        Raises:
            click.UsageError: it is not named.
            QuorateError: refused, or nobody answers.
        """
