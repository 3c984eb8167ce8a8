"""``quorate metadata rm`` and ``set``: only /controller can be changed by hand (E5, Q14)."""

import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, Any, Final

import click

from quorate.cli.metadata.metadata_source import MetadataAddress, metadata_options, write
from quorate.cli.output import echo

if TYPE_CHECKING:
    from quorate.metadata_log.image import Image

CONTROLLER: Final = "/controller"

_INSTEAD: Final = (
    (r"/brokers/topics(/|$)", "quorate topics create, alter or delete"),
    (r"/admin/partitions_reassigned(/|$)", "quorate reassign"),
    (r"/admin/delete_topics(/|$)", "quorate topics delete"),
    (r"/config(/|$)", "quorate configs"),
    (r"/quotas(/|$)", "quorate configs --entity-type users, clients or both"),
    (r"/acls(/|$)", "quorate acls"),
    (r"/scram(/|$)", "quorate users"),
    (r"/tokens(/|$)", "quorate tokens"),
    (r"/features(/|$)", "quorate features upgrade or downgrade"),
    (r"/quorum/voters(/|$)", "quorate quorum add-voter or remove-voter"),
    (r"/brokers/ids(/|$)", "stopping that broker"),
    (r"/controller_epoch$", "nothing: it only ever grows"),
)
"""The command that changes each path that cannot be written by hand."""


@click.command()
@click.argument("path")
@metadata_options
def rm(where: MetadataAddress, path: str) -> None:
    """Remove /controller, which forces the election of a new controller. No other path can be
    removed by hand.

    \b
    Example:
      quorate metadata rm /controller --data ./quorate-data
    """
    _require_controller(path, "removed")
    if where.bootstrap_server is not None:
        from quorate.client.admin import AdminClient

        with AdminClient(
            where.bootstrap_server, client_id="quorate-cli", options=where.client_options()
        ) as admin:
            epoch = admin.resign_controller()
    else:
        from quorate.metadata_log.handover import release_controller

        image, result = asyncio.run(write(where.quorum, release_controller))
        if not result.ok:
            raise click.ClickException(result.detail)
        epoch = image.controller_epoch
    echo(f"controller epoch {epoch} is over")


@click.command("set")
@click.argument("path")
@click.argument("value")
@metadata_options
def set_(where: MetadataAddress, path: str, value: str) -> None:
    """Write the id of another broker into /controller, which makes that broker the controller. No
    other path can be set by hand.

    VALUE is the broker id, alone or as {"version":1,"brokerid":2,"timestamp":"0"}.

    \b
    Example:
      quorate metadata set /controller 2 --data ./quorate-data
    """
    from quorate.common.types import BrokerId
    from quorate.metadata_log.handover import IneligibleController, hand_over

    _require_controller(path, "set")
    to = _broker_id(value)
    if where.bootstrap_server is not None:
        from quorate.client.admin import AdminClient

        with AdminClient(
            where.bootstrap_server, client_id="quorate-cli", options=where.client_options()
        ) as admin:
            epoch = admin.move_controller(to)
    else:

        def decide(image: "Image") -> Any:  # noqa: ANN401 - an Operation, not loaded for help
            return hand_over(image, BrokerId(to), int(time.time() * 1000))

        try:
            image, result = asyncio.run(write(where.quorum, decide))
        except IneligibleController as error:
            raise click.ClickException(str(error)) from error
        if not result.ok:
            raise click.ClickException(result.detail)
        epoch = image.controller_epoch + 1
    echo(f"broker {to} is the controller, epoch {epoch}")


def _require_controller(path: str, done: str) -> None:
    clean = "/" + path.strip("/")
    if clean == CONTROLLER:
        return
    instead = next((what for where, what in _INSTEAD if re.match(where, clean)), "")
    hint = f": what changes it is {instead}" if instead else ""
    raise click.UsageError(f"{clean} is not {done} by hand, only {CONTROLLER} is{hint}")


def _broker_id(value: str) -> int:
    try:
        content = json.loads(value)
        found = content["brokerid"] if isinstance(content, dict) else content
        if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
            return found
    except (ValueError, KeyError):
        pass
    raise click.UsageError(
        f"{value!r} names no broker: give its id, or "
        '{"version":1,"brokerid":2,"timestamp":"0"} with its id'
    )
