"""Opens the Kafka listeners of a starting broker according to its configuration."""

from collections.abc import Callable
from typing import Final

from quorate.broker.config.listeners import LISTENERS
from quorate.broker.environment import KafkaListener
from quorate.broker.security.credential_provider import CredentialProvider
from quorate.broker.security.listener_security import configured_listeners, listener_security_of
from quorate.broker.security.listener_tls import ListenerTls
from quorate.common.configuration import ConfigError, Values
from quorate.common.types import Endpoint
from quorate.metadata_log.records import Listener

_NONCE_BYTES: Final = 16


class ListenError(RuntimeError):
    """Raised when an address in the configuration cannot be listened on."""


async def open_kafka_listeners(
    kafka: KafkaListener,
    config: Values,
    credentials: CredentialProvider,
    random_bytes: Callable[[int], bytes],
) -> list[Listener]:
    """Open the Kafka listeners. Return the address of each for clients.

    That is the advertised address, or else the address that it listens on.

    Raises:
        ListenError: an address is taken, or certificates cannot be used.
    """
    opened = []
    for listener in configured_listeners(config):
        try:
            tls = ListenerTls(config) if listener.protocol.has_tls else None
            security = listener_security_of(
                listener, config, credentials, lambda: random_bytes(_NONCE_BYTES).hex()
            )
            bound = await kafka.start(listener.endpoint, security, tls)
        except ConfigError as error:
            raise ListenError(f"listener {listener.name}: {error}") from error
        except OSError as error:
            raise address_taken(LISTENERS.name, listener.endpoint) from error
        opened.append(Listener(name=listener.name, endpoint=listener.advertised or bound))
    return opened


def address_taken(key: str, endpoint: Endpoint) -> ListenError:
    """Return the error for an address that cannot be bound."""
    return ListenError(
        f"cannot listen on {endpoint} ({key}): the port is taken or the address is not "
        "this machine's; choose another, or stop what uses it"
    )
