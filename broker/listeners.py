"""The Kafka listeners of a starting broker, opened as its configuration says."""

from collections.abc import Callable
from typing import Final

from broker.config.listeners import LISTENERS
from broker.security.door import door_of
from broker.security.listeners import configured_listeners
from broker.security.logins import Logins
from broker.security.tls import ListenerTls
from broker.surroundings import KafkaListener
from metadata_log.configuration import ConfigError, Values
from metadata_log.records import Listener
from metadata_log.types import Endpoint

_NONCE_BYTES: Final = 16


class ListenError(RuntimeError):
    """An address this broker was told to listen on cannot be used."""


async def open_listeners(
    kafka: KafkaListener,
    config: Values,
    logins: Logins,
    random_bytes: Callable[[int], bytes],
) -> list[Listener]:
    """Where clients are to connect, by listener: what is advertised, else what is listened on.

    Raises:
        ListenError: an address is taken, or certificates cannot be used.
    """
    opened = []
    for listener in configured_listeners(config):
        try:
            tls = ListenerTls(config) if listener.protocol.has_tls else None
            door = door_of(listener, config, logins, lambda: random_bytes(_NONCE_BYTES).hex())
            bound = await kafka.start(listener.endpoint, door, tls)
        except ConfigError as error:
            raise ListenError(f"listener {listener.name}: {error}") from error
        except OSError as error:
            raise taken(LISTENERS.name, listener.endpoint) from error
        opened.append(Listener(name=listener.name, endpoint=listener.advertised or bound))
    return opened


def taken(key: str, endpoint: Endpoint) -> ListenError:
    """What to say of an address that cannot be bound."""
    return ListenError(
        f"cannot listen on {endpoint} ({key}): the port is taken or the address is not "
        "this machine's; choose another, or stop what uses it"
    )
