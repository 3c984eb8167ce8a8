"""SaslHandshake (17) and SaslAuthenticate (36), by which a client proves its identity.

A client that fails gets a response after a fixed time, which says only that it failed. Neither the
response nor its time shows whether the user exists or what was wrong. ``security.sasl_session``
decides.
"""

import asyncio
import logging
from typing import Final

from quorate.broker.config.security import FAILED_AUTHENTICATION_DELAY_MS
from quorate.broker.kafka.connection.requests import CloseConnection, RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire import codec
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.security.login_queue import TooManyLogins
from quorate.broker.security.sasl_exchange import (
    Challenge,
    DeferredVerification,
    SaslAuthenticationFailed,
)
from quorate.broker.security.sasl_session import (
    IllegalSaslState,
    SaslSession,
    UnsupportedSaslMechanism,
)
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)


async def handshake(services: KafkaServices, context: RequestContext, request: Message) -> Message:
    """Accept the mechanism that the client has chosen, and return which ones are enabled."""
    sasl = context.sasl
    if sasl is None:
        return _handshake_response(errors_pb2.ILLEGAL_SASL_STATE)
    code = errors_pb2.NONE
    try:
        sasl.handshake(request["mechanism"], context.version)
    except UnsupportedSaslMechanism as error:
        _log.warning("%s asks for SASL mechanism %s", context.client_host, error)
        code = errors_pb2.UNSUPPORTED_SASL_MECHANISM
    except IllegalSaslState as error:
        response = _handshake_response(errors_pb2.ILLEGAL_SASL_STATE)
        encoded = codec.encode_response("sasl_handshake", context.version, response)
        raise CloseConnection(str(error), encoded) from error
    return _handshake_response(code, sasl.mechanisms)


async def authenticate(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """Carry out one step of the exchange. After the last step the client is authenticated."""
    sasl = context.sasl
    version = context.version
    if sasl is None:
        message = f"listener {context.listener} does without SASL"
        return _response(errors_pb2.ILLEGAL_SASL_STATE, message)
    delay_ms = services.config[FAILED_AUTHENTICATION_DELAY_MS]
    began = asyncio.get_running_loop().time()
    try:
        token, lifetime_ms = await _step(sasl, bytes(request["auth_bytes"]), context.client_host)
    except IllegalSaslState as error:
        encoded = _encode(version, _response(errors_pb2.ILLEGAL_SASL_STATE, str(error)))
        raise CloseConnection(str(error), encoded) from error
    except SaslAuthenticationFailed as error:
        await sasl.failures.delay(context.client_host, began, delay_ms)
        message = f"authentication failed: invalid credentials for {sasl.mechanism}"
        encoded = _encode(version, _response(errors_pb2.SASL_AUTHENTICATION_FAILED, message))
        raise CloseConnection(f"authentication by {sasl.mechanism}: {error}", encoded) from error
    except TooManyLogins as error:
        # It is closed without an answer: a client that is told that authentication failed gives up.
        await sasl.failures.delay(context.client_host, began, delay_ms)
        raise CloseConnection(f"authentication by {sasl.mechanism}: {error}") from error
    return _response(errors_pb2.NONE, None, token, lifetime_ms)


async def authenticate_bare(
    sasl: SaslSession, token: bytes, client_host: str, delay_ms: int
) -> bytes:
    """Carry out one step for a token that came without a request around it. A failure closes the
    connection.
    """
    began = asyncio.get_running_loop().time()
    try:
        return (await _step(sasl, token, client_host))[0]
    except (IllegalSaslState, SaslAuthenticationFailed, TooManyLogins) as error:
        await sasl.failures.delay(client_host, began, delay_ms)
        raise CloseConnection(f"authentication by {sasl.mechanism}: {error}") from error


async def _step(sasl: SaslSession, token: bytes, client_host: str) -> tuple[bytes, int]:
    """Return the next token for the client. Once it is authenticated, also return the lifetime
    of its session in ms; before that, it is 0.
    """
    step = sasl.authenticate(token)
    if isinstance(step, Challenge):
        return step.response, 0
    if isinstance(step, DeferredVerification):
        try:
            step = await sasl.logins.run(client_host, step.user, step.verify)
        except (SaslAuthenticationFailed, TooManyLogins):
            sasl.fail()
            raise
        if isinstance(step, Challenge):
            return step.response, 0
    return step.response, sasl.complete(step)


def _handshake_response(code: int, mechanisms: tuple[str, ...] = ()) -> Message:
    return {"error_code": code, "mechanisms": mechanisms}


def _response(code: int, message: str | None, token: bytes = b"", lifetime_ms: int = 0) -> Message:
    return {
        "error_code": code,
        "error_message": message,
        "auth_bytes": token,
        "session_lifetime": lifetime_ms,
    }


def _encode(version: int, response: Message) -> bytes:
    return codec.encode_response("sasl_authenticate", version, response)
