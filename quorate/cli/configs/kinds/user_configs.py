"""SCRAM credentials and quotas of users, in the words of Kafka's command."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.configs.kinds.config_kind import Entity
from quorate.cli.configs.kinds.quota_configs import QUOTAS
from quorate.cli.output import echo

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.client.results import ScramDeletion, ScramUpsertion

_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_CREDENTIAL: Final = re.compile(r"(?:iterations=(?P<iterations>\d+),)?password=(?P<password>.+)")


class UserConfigs:
    """Describes and alters users: keys that name a SCRAM mechanism are credentials, all others
    quotas."""

    def describe(
        self,
        admin: "AdminClient",
        entities: Sequence[Entity],
        *,
        everything: bool,
        as_json: bool,
    ) -> None:
        QUOTAS.describe(admin, entities, everything=everything, as_json=as_json)
        (entity,) = entities
        if as_json or entity.is_default:
            return
        for user in admin.describe_user_scram_credentials([entity.name] if entity.name else []):
            shown = ",".join(f"{one}=iterations={n}" for one, n in user.iterations.items())
            echo(f"SCRAM credential configs for user-principal '{user.user}' are {shown}")

    def alter(
        self,
        admin: "AdminClient",
        entities: Sequence[Entity],
        added: Mapping[str, str],
        deleted: Sequence[str],
    ) -> str:
        (entity,) = entities
        credentials = {key: added[key] for key in _MECHANISMS if key in added}
        gone = [key for key in deleted if key in _MECHANISMS]
        quotas = {key: value for key, value in added.items() if key not in _MECHANISMS}
        quotas_gone = [key for key in deleted if key not in _MECHANISMS]
        done = ""
        if credentials or gone:
            if entity.name is None or entity.is_default:
                raise click.UsageError("credentials are one user's: give --entity-name")
            changes = _changes(entity.name, credentials, gone)
            for result in admin.alter_user_scram_credentials(changes):
                result.raise_for_error()
            done = f"Completed updating config for user {entity.name}."
        if quotas or quotas_gone:
            done = QUOTAS.alter(admin, entities, quotas, quotas_gone)
        return done


def _changes(
    user: str, credentials: Mapping[str, str], gone: Sequence[str]
) -> "list[ScramUpsertion | ScramDeletion]":
    from quorate.client.results import ScramDeletion, ScramUpsertion

    changes: list[ScramUpsertion | ScramDeletion] = []
    for mechanism, value in credentials.items():
        found = _CREDENTIAL.fullmatch(value)
        if found is None:
            raise click.UsageError(
                f"--add-config {mechanism}=…: must be {mechanism}=[iterations=8192,password=…]"
            )
        iterations = int(found["iterations"] or 8_192)
        if not 4_096 <= iterations <= 16_384:
            raise click.UsageError(f"{mechanism}: {iterations} iterations: give 4096 to 16384")
        changes.append(ScramUpsertion.of_password(user, mechanism, found["password"], iterations))
    changes += [ScramDeletion(user=user, mechanism=one) for one in gone]
    return changes


USERS: Final = UserConfigs()
