"""The log folder of a stopped broker, as commands take it and hold it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click


def log_dir_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--log-dir",
        "directory",
        required=True,
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="log.dir of a broker that is not running.",
    )(command)


@contextmanager
def held_folder(directory: Path, *, if_running: str = "") -> Iterator[None]:
    """Hold the folder, so that no broker starts with it. Errors of the store become messages, with
    ``if_running`` in the message about a broker that runs."""
    from quorate.broker.common.errors import KafkaError
    from quorate.common.files.data_folder import (
        DataFolderError,
        DataFolderInUse,
        held_data_folder,
    )

    refuse_parent(directory)
    try:
        with held_data_folder(directory):
            yield
    except DataFolderInUse as error:
        raise click.ClickException(f"{error}{if_running}") from error
    except (DataFolderError, KafkaError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot read or write {directory}: {error}") from error


def is_log_folder(directory: Path) -> bool:
    """Return whether a broker has used the folder, also if a file of it is lost."""
    from quorate.broker.log.checkpoints.store_table import FILE_NAME
    from quorate.common.files.data_folder import IDENTITY_FILE

    return (directory / IDENTITY_FILE).exists() or (directory / FILE_NAME).exists()


def refuse_parent(directory: Path) -> None:
    """Refuse a folder that only holds log folders, as one with the folders of several disks does.

    Raises:
        click.ClickException: it names these folders.
    """
    if is_log_folder(directory) or not directory.is_dir():
        return
    inside = sorted(one for one in directory.iterdir() if is_log_folder(one))
    if inside:
        raise click.ClickException(
            f"{directory} is no log folder, but holds {', '.join(map(str, inside))}: give one of "
            "them as --log-dir"
        )
