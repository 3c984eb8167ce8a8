"""``quorate schemas``: subjects, versions and compatibility in the schema registry."""

from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from quorate.cli.output import echo
from quorate.cli.schemas.registry_options import registry_options
from quorate.cli.shared_options import json_option, print_json

if TYPE_CHECKING:
    from quorate.client.schema_registry import SchemaRegistry

LANGUAGES: Final = ("AVRO", "JSON", "PROTOBUF")
LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)

_type_option = click.option(
    "--type",
    "language",
    type=click.Choice(LANGUAGES, case_sensitive=False),
    default="AVRO",
    show_default=True,
    help="Language of the schema.",
)
_reference_option = click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="NAME=SUBJECT:VERSION",
    help="A schema that this one refers to, by the name that it uses. It may be repeated.",
)
_file_option = click.option(
    "--file",
    type=click.File(encoding="utf-8"),
    default="-",
    metavar="FILE",
    help="File with the schema. Default: standard input.",
)


@click.group()
def schemas() -> None:
    """List, get, register, check and delete schemas, and configure their compatibility.

    \b
    Example:
      quorate up --set registry.listener=http://127.0.0.1:0 --detach
      quorate schemas register --subject orders-value --file order.avsc
      quorate schemas check --subject orders-value --file order-with-note.avsc
      quorate schemas list
    """


@schemas.command("list")
@click.option("--subject", help="List the versions of this subject. Default: all subjects.")
@click.option("--deleted", is_flag=True, help="Also what is deleted softly.")
@registry_options
@json_option
def list_subjects(
    subject: str | None, deleted: bool, as_json: bool, asked: "SchemaRegistry"
) -> None:
    """List subjects, or the versions of one.

    \b
    Example:
      quorate schemas list --subject orders-value
    """
    parts = ("subjects",) if subject is None else ("subjects", subject, "versions")
    query = {"deleted": str(deleted).lower()}
    found = asked.ask("GET", *parts, query=query)
    if as_json:
        print_json(found)
        return
    for one in found:
        echo(str(one))


@schemas.command()
@click.option("--subject", help="Subject of the schema.")
@click.option("--version", default="latest", show_default=True, help="Version of the subject.")
@click.option("--id", "schema_id", type=int, help="Id of the schema, instead of a subject.")
@registry_options
@json_option
def get(
    subject: str | None, version: str, schema_id: int | None, as_json: bool, asked: "SchemaRegistry"
) -> None:
    """Print a schema. With --json also its id, version and type.

    \b
    Example:
      quorate schemas get --subject orders-value
      quorate schemas get --id 1 --json
    """
    if (subject is None) == (schema_id is None):
        raise click.UsageError("give --subject or --id")
    if subject is None:
        parts = ["schemas", "ids", str(schema_id)]
    else:
        parts = ["subjects", subject, "versions", version]
    found = asked.ask("GET", *parts)
    if as_json:
        print_json(found)
        return
    for line in str(found["schema"]).splitlines():
        echo(line)


@schemas.command()
@click.option("--subject", required=True, help="Subject to register it under.")
@_file_option
@_type_option
@_reference_option
@click.option("--normalize", is_flag=True, help="Register it in the form that equal ones share.")
@registry_options
@json_option
def register(
    subject: str,
    file: TextIO,
    language: str,
    references: tuple[str, ...],
    normalize: bool,
    as_json: bool,
    asked: "SchemaRegistry",
) -> None:
    """Register a schema, and print its id. A schema that is there already keeps its id.

    \b
    Example:
      quorate schemas register --subject orders-value --file order.avsc
    """
    found = asked.ask(
        "POST",
        "subjects",
        subject,
        "versions",
        body=_schema(file.read(), language, references),
        query={"normalize": str(normalize).lower()},
    )
    if as_json:
        print_json(found)
        return
    echo(str(found["id"]))


@schemas.command()
@click.option("--subject", required=True, help="Subject to compare it with.")
@click.option("--version", help="Compare with this version alone.")
@_file_option
@_type_option
@_reference_option
@registry_options
@json_option
def check(
    subject: str,
    version: str | None,
    file: TextIO,
    language: str,
    references: tuple[str, ...],
    as_json: bool,
    asked: "SchemaRegistry",
) -> int:
    """Check whether a schema could be registered. The exit code is 1 if it could not.

    \b
    Example:
      quorate schemas check --subject orders-value --file order.avsc
    """
    parts = ["compatibility", "subjects", subject, "versions"]
    found = asked.ask(
        "POST",
        *parts,
        *([] if version is None else [version]),
        body=_schema(file.read(), language, references),
        query={"verbose": "true"},
    )
    if as_json:
        print_json(found)
    elif found["is_compatible"]:
        echo("compatible")
    else:
        for problem in found.get("messages", ()):
            echo(str(problem))
    return 0 if found["is_compatible"] else 1


@schemas.command()
@click.option("--subject", required=True, help="Subject to delete, or of the version.")
@click.option("--version", help="Delete this version alone.")
@click.option(
    "--permanent",
    is_flag=True,
    help="Delete for ever what is deleted softly already. Data with its ids cannot be read then.",
)
@registry_options
@json_option
def delete(
    subject: str, version: str | None, permanent: bool, as_json: bool, asked: "SchemaRegistry"
) -> None:
    """Delete a subject or a version: softly, so that its ids can still be looked up.

    \b
    Example:
      quorate schemas delete --subject orders-value --version 1
    """
    parts = ["subjects", subject, *([] if version is None else ["versions", version])]
    query = {"permanent": str(permanent).lower()}
    found = asked.ask("DELETE", *parts, query=query)
    if as_json:
        print_json(found)
        return
    versions = found if isinstance(found, list) else [found]
    echo(f"deleted: version {', '.join(map(str, versions))} of {subject}")


@schemas.command()
@click.option("--subject", help="Subject. Default: what holds for all.")
@click.option(
    "--compatibility",
    type=click.Choice(LEVELS, case_sensitive=False),
    help="Set the level. Without it the command shows the configuration.",
)
@click.option("--delete", "is_deletion", is_flag=True, help="Forget the configuration.")
@registry_options
@json_option
def config(
    subject: str | None,
    compatibility: str | None,
    is_deletion: bool,
    as_json: bool,
    asked: "SchemaRegistry",
) -> None:
    """Show, set or forget which changes of schemas are compatible.

    \b
    Example:
      quorate schemas config --subject orders-value --compatibility FULL
    """
    if compatibility and is_deletion:
        raise click.UsageError("give --compatibility or --delete, not both")
    parts = ["config", *([] if subject is None else [subject])]
    if compatibility:
        found = asked.ask("PUT", *parts, body={"compatibility": compatibility.upper()})
    elif is_deletion:
        found = asked.ask("DELETE", *parts)
    else:
        found = asked.ask("GET", *parts, query={"defaultToGlobal": "true"})
    if as_json:
        print_json(found)
        return
    level = found.get("compatibilityLevel") or found.get("compatibility")
    echo(f"{'was ' if is_deletion else ''}{level}")


def _schema(text: str, language: str, references: tuple[str, ...]) -> dict[str, Any]:
    return {
        "schema": text,
        "schemaType": language.upper(),
        "references": [_reference(one) for one in references],
    }


def _reference(given: str) -> dict[str, Any]:
    name, equals, target = given.partition("=")
    subject, _, version = target.rpartition(":")
    if not equals or not subject or not version.isdecimal():
        raise click.UsageError(f"--reference {given}: must be NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}
