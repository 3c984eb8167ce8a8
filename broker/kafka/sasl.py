"""SaslHandshake (17) and SaslAuthenticate (36): a client shows who it is.

A client that fails is told so after a fixed time, and nothing else: neither whether the user exists
nor what was wrong can be read from the answer or its time (``broker.security.sasl`` decides).
"""

import asyncio
import logging
from typing import Final

from broker.kafka import codec
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, CloseConnection, RequestContext
from broker.kafka.services import KafkaServices
from broker.security.config import FAILED_AUTHENTICATION_DELAY_MS
from broker.security.mechanism import Challenge, Costly, SaslRefused
from broker.security.passwords import HASHING
from broker.security.sasl import OutOfOrder, SaslSession, UnsupportedMechanism
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)


async def handshake(services: KafkaServices, context: RequestContext, request: Message) -> Buffers:
    """The client chooses a mechanism, and learns which there are."""
    sasl = context.sasl
    if sasl is None:
        return [_handshake_answer(context.version, errors_pb2.ILLEGAL_SASL_STATE)]
    code = errors_pb2.NONE
    try:
        sasl.handshake(request["mechanism"], context.version)
    except UnsupportedMechanism as error:
        _log.warning("%s asks for SASL mechanism %s", context.client_host, error)
        code = errors_pb2.UNSUPPORTED_SASL_MECHANISM
    except OutOfOrder as error:
        answer = _handshake_answer(context.version, errors_pb2.ILLEGAL_SASL_STATE)
        raise CloseConnection(str(error), answer) from error
    return [_handshake_answer(context.version, code, sasl.mechanisms)]


async def authenticate(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    """One step of the exchange; after the last one the client is who it says."""
    sasl = context.sasl
    version = context.version
    if sasl is None:
        message = f"listener {context.listener} does without SASL"
        return [_answer(version, errors_pb2.ILLEGAL_SASL_STATE, message)]
    delay_ms = services.config[FAILED_AUTHENTICATION_DELAY_MS]
    began = asyncio.get_running_loop().time()
    try:
        token, lifetime_ms = await _step(sasl, bytes(request["auth_bytes"]))
    except OutOfOrder as error:
        answer = _answer(version, errors_pb2.ILLEGAL_SASL_STATE, str(error))
        raise CloseConnection(str(error), answer) from error
    except SaslRefused as error:
        await _until(began, delay_ms)
        message = f"authentication failed: invalid credentials for {sasl.mechanism}"
        answer = _answer(version, errors_pb2.SASL_AUTHENTICATION_FAILED, message)
        raise CloseConnection(f"authentication by {sasl.mechanism}: {error}", answer) from error
    return [_answer(version, errors_pb2.NONE, None, token, lifetime_ms)]


async def authenticate_bare(sasl: SaslSession, token: bytes, delay_ms: int) -> bytes:
    """As ``authenticate``, for a token without a request around it; failing is closing."""
    began = asyncio.get_running_loop().time()
    try:
        return (await _step(sasl, token))[0]
    except (OutOfOrder, SaslRefused) as error:
        await _until(began, delay_ms)
        raise CloseConnection(f"authentication by {sasl.mechanism}: {error}") from error


async def _step(sasl: SaslSession, token: bytes) -> tuple[bytes, int]:
    """The next token for the client, and once it is let in its session's lifetime in ms."""
    step = sasl.authenticate(token)
    if isinstance(step, Challenge):
        return step.answer, 0
    if isinstance(step, Costly):
        loop = asyncio.get_running_loop()
        try:
            step = await loop.run_in_executor(HASHING, step.verdict)
        except SaslRefused:
            sasl.refused()
            raise
    return step.answer, sasl.concluded(step)


async def _until(began: float, delay_ms: int) -> None:
    left_s = began + delay_ms / 1000 - asyncio.get_running_loop().time()
    await asyncio.sleep(max(0.0, left_s))


def _handshake_answer(version: int, code: int, mechanisms: tuple[str, ...] = ()) -> bytes:
    values = {"error_code": code, "mechanisms": mechanisms}
    return codec.encode_response("sasl_handshake", version, values)


def _answer(
    version: int, code: int, message: str | None, token: bytes = b"", lifetime_ms: int = 0
) -> bytes:
    values = {
        "error_code": code,
        "error_message": message,
        "auth_bytes": token,
        "session_lifetime": lifetime_ms,
    }
    return codec.encode_response("sasl_authenticate", version, values)
