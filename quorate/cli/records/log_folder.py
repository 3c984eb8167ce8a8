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
def held_folder(directory: Path) -> Iterator[None]:
    """Hold the folder, so that no broker starts with it. Errors of the store become messages."""
    from quorate.broker.common.errors import KafkaError
    from quorate.common.files.data_folder import DataFolderError, held_data_folder

    try:
        with held_data_folder(directory):
            yield
    except (DataFolderError, KafkaError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot read or write {directory}: {error}") from error
