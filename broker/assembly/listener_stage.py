"""The listeners of a broker: Kafka, gRPC for brokers, gRPC for clients, and HTTP."""

import logging
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, NamedTuple

from quorate.broker.assembly.console_stage import ConsoleStage, open_console
from quorate.broker.assembly.kafka_listeners import ListenError, address_taken, open_kafka_listeners
from quorate.broker.assembly.services import BrokerServices
from quorate.broker.assembly.shared_parts import SharedParts
from quorate.broker.changes.audit_log import KeepAuditEntries
from quorate.broker.config.grpc_listeners import (
    GRPC_LISTENER,
    INTER_BROKER_LISTENER,
    REPLICATION_PORT,
    advertised_grpc_endpoint,
    grpc_endpoint,
    inter_broker_endpoint,
)
from quorate.broker.config.http_listeners import HTTP_LISTENERS, REGISTRY_LISTENER
from quorate.broker.replication.services.replication_listener import ReplicationListener
from quorate.broker.rpc.grpc_listener import GrpcListener
from quorate.broker.security.bearer_tokens import BearerTokenValidator
from quorate.broker.security.client_guard import VerifiedPasswords
from quorate.broker.security.credential_provider import CredentialProvider
from quorate.broker.security.http_security import takes_bearer_tokens_over_http
from quorate.broker.security.listener_security import takes_bearer_tokens
from quorate.broker.security.login_queue import LoginQueue
from quorate.broker.security.signing_keys import KeysUnavailable, SigningKeySource
from quorate.broker.security.token_secrets import TokenLogins
from quorate.common.configuration import Values
from quorate.common.types import ID_BYTES, Endpoint
from quorate.metadata_log.records import Listener

log = logging.getLogger(__name__)

STOP_GRACE_S: Final = 2.0
"""The time that calls in flight have to end once the listeners close."""


class Addresses(NamedTuple):
    """The addresses of a broker, as it tells them to others."""

    listeners: list[Listener]
    grpc: Endpoint
    inter_broker: Endpoint


async def open_listeners(
    shared: SharedParts,
    services: BrokerServices,
    audit_log: KeepAuditEntries,
    cleanup: AsyncExitStack,
) -> Addresses:
    """Open the listeners for clients and brokers.

    Raises:
        ListenError: an address is taken, or certificates cannot be used.
    """
    config, environment = shared.config, shared.environment
    keys = await _signing_keys(config, cleanup)
    credentials = _credential_provider(shared, keys)
    shared.images.subscribe(credentials.decoys.on_image, "scram")
    kafka = environment.kafka_listener(services.kafka)
    brokers = environment.inter_broker_listener(shared.images)
    logins = LoginQueue()
    services.kafka.figures.logins.append(logins)
    clients = environment.client_listener(VerifiedPasswords(credentials.passwords, logins))
    followers = services.replication_listener()
    services.serve_brokers(brokers.server, followers)
    console = ConsoleStage(shared, services)
    console.serve_brokers(brokers.server)
    services.serve_clients(clients.server)
    inter_broker = _bind(brokers, INTER_BROKER_LISTENER.name, inter_broker_endpoint(config))
    if followers is not None:
        await _start(followers, Endpoint(inter_broker.host, config[REPLICATION_PORT]), cleanup)
    grpc_bound = _bind(clients, GRPC_LISTENER.name, grpc_endpoint(config))
    listeners = await open_kafka_listeners(kafka, config, credentials, environment.random_bytes)
    cleanup.push_async_callback(kafka.stop)
    if any(config[key] for key in HTTP_LISTENERS):
        await _open_http(shared, services, console, credentials, audit_log, cleanup)
    for server in (brokers.server, clients.server):
        await server.start()
        cleanup.push_async_callback(partial(server.stop, STOP_GRACE_S))
    return Addresses(listeners, advertised_grpc_endpoint(config, grpc_bound), inter_broker)


async def _open_http(
    shared: SharedParts,
    services: BrokerServices,
    console: ConsoleStage,
    credentials: CredentialProvider,
    audit_log: KeepAuditEntries,
    cleanup: AsyncExitStack,
) -> None:
    """Open the HTTP listeners that are configured. What they need is loaded only then."""
    from quorate.broker.assembly.http_listeners import HttpListeners
    from quorate.broker.registry.registry_routes import REGISTRY, refusal

    http = HttpListeners(shared.config, credentials, audit_log, services.kafka.figures, cleanup)
    if shared.config[REGISTRY_LISTENER]:
        routes = services.registry_routes()
        await http.open(REGISTRY_LISTENER, REGISTRY, routes, show=refusal)
    await open_console(shared, console, http, cleanup)


async def _start(followers: ReplicationListener, wanted: Endpoint, cleanup: AsyncExitStack) -> None:
    try:
        await followers.start(wanted)
    except OSError as error:
        raise address_taken(REPLICATION_PORT.name, wanted) from error
    cleanup.push_async_callback(followers.stop)


async def _signing_keys(config: Values, cleanup: AsyncExitStack) -> SigningKeySource | None:
    """Return the keys of bearer tokens, which are being fetched, or None without OAUTHBEARER."""
    if not takes_bearer_tokens(config) and not takes_bearer_tokens_over_http(config):
        return None
    keys = SigningKeySource.of(config)
    cleanup.push_async_callback(keys.stop)
    try:
        await keys.start()
    except KeysUnavailable as error:
        raise ListenError(f"keys of bearer tokens: {error}") from error
    return keys


def _credential_provider(shared: SharedParts, keys: SigningKeySource | None) -> CredentialProvider:
    return CredentialProvider(
        shared.images,
        pepper=shared.environment.random_bytes(ID_BYTES),
        wall_clock_ms=shared.environment.wall_clock_ms,
        find_token=TokenLogins(shared.images, shared.token_keys).find,
        bearer_tokens=None
        if keys is None
        else BearerTokenValidator.of(shared.config, keys.find, shared.environment.wall_clock_ms),
    )


def _bind(listener: GrpcListener, key: str, wanted: Endpoint) -> Endpoint:
    try:
        bound = listener.bind(wanted)
    except RuntimeError as error:
        raise address_taken(key, wanted) from error
    log.info("%s on %s", key, bound)
    return bound
