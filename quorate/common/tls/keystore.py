"""Reads the PEM files with which a process proves its identity, and explains what is wrong with
them.
"""

import datetime
import logging
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from quorate.common.tls.identity import Principal, Role, Security, SecurityError, role_name

log = logging.getLogger(__name__)

EXPIRY_WARNING: Final = datetime.timedelta(days=30)
_FORBIDDEN_BITS: Final = 0o027
"""The rights that others may not have. Only the owner and, as service managers need it, a group may
read a private key."""


def load_security(
    keystore_key: str, keystore: Path, truststore_key: str, truststore: Path, role: Role | None
) -> Security:
    """Load the two PEM files, checked: they fit together and are valid for ``role`` now.

    ``keystore_key`` and ``truststore_key`` are the configuration keys, for messages. ``role`` is
    None for a listener for strangers, whose authority may be another than that of its own
    certificate.

    Raises:
        SecurityError: missing, unreadable, malformed, expired, another role's, or not signed by
        the authority of the truststore; says what to do.
    """
    private_key, certificates = load_keystore(keystore_key, keystore)
    authorities = load_truststore(truststore_key, truststore)
    own = certificates[0]
    where = f"{keystore_key}={keystore}"
    principal = _principal(own)
    if role is not None:
        _check_signed(where, certificates, f"{truststore_key}={truststore}", authorities)
    if role is not None and not principal.has_role(role):
        raise SecurityError(
            f"{where} is the certificate of {principal}, and one with the name {role_name(role)} "
            "is needed: make it with `quorate certs`"
        )
    return Security(
        keystore=keystore,
        truststore=truststore,
        private_key=_key_pem(private_key),
        chain=_pem(certificates),
        authority=_pem(authorities),
        principal=principal,
    )


def load_keystore(key: str, path: Path) -> tuple[PrivateKeyTypes, list[x509.Certificate]]:
    """Load a private key and its certificate chain, checked: they fit together and are valid now.

    ``key`` is the configuration key, for messages.

    Raises:
        SecurityError: missing, unreadable, malformed or expired; says what to do.
    """
    content = _read(key, path)
    _check_mode(key, path)
    certificates = _certificates(key, path, content)
    private_key = _private_key(key, path, content)
    where = f"{key}={path}"
    if private_key.public_key() != certificates[0].public_key():
        raise SecurityError(
            f"{where}: the private key does not belong to the first certificate in it: "
            "put the node's own certificate first, or make both anew with `quorate certs`"
        )
    _check_time(where, certificates[0])
    return private_key, certificates


def load_truststore(key: str, path: Path) -> list[x509.Certificate]:
    """Load the authorities in a PEM file. ``key`` is as in ``load_keystore``."""
    return _certificates(key, path, _read(key, path))


def require_node(security: Security, key: str, role: Role, node_id: int) -> None:
    """Refuse to run as ``node_id`` with somebody else's certificate.

    Raises:
        SecurityError: the certificate names another node.
    """
    if not security.principal.is_node(role, node_id):
        raise SecurityError(
            f"{key}={security.keystore} is the certificate of {security.principal}, not of "
            f"{role} {node_id}: configure this node's own, or make one with `quorate certs`"
        )


def _read(key: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SecurityError(
            f"{key}={path}: {error.strerror}. Make certificates with `quorate certs`, or correct "
            "the path"
        ) from error


def _check_mode(key: str, path: Path) -> None:
    mode = path.stat().st_mode & 0o777
    if mode & _FORBIDDEN_BITS:
        raise SecurityError(
            f"{key}={path} holds a private key and has mode {mode:04o}: others must not read it, "
            f"nor a group write it. Run: chmod 600 {path}"
        )


def _certificates(key: str, path: Path, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise SecurityError(
            f"{key}={path} holds no certificate in PEM form ({error}): give a file as "
            "`quorate certs` makes it"
        ) from error


def _private_key(key: str, path: Path, content: bytes) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(content, password=None)
    except TypeError as error:
        raise SecurityError(
            f"{key}={path}: the private key is protected by a password, which is not supported: "
            "store it without, readable by its owner alone"
        ) from error
    except ValueError as error:
        raise SecurityError(
            f"{key}={path} holds no private key in PEM form: put the key and the certificate "
            "chain into one file, as `quorate certs` does"
        ) from error


def _check_time(where: str, own: x509.Certificate) -> None:
    now = datetime.datetime.now(datetime.UTC)
    begin, end = own.not_valid_before_utc, own.not_valid_after_utc
    if not begin <= now <= end:
        what = "expired on" if now > end else "is not valid before"
        raise SecurityError(
            f"{where}: the certificate {what} {end if now > end else begin:%Y-%m-%d %H:%M} UTC, "
            f"and the clock says {now:%Y-%m-%d %H:%M} UTC: renew it with `quorate certs --renew`, "
            "or correct the clock"
        )
    if end - now < EXPIRY_WARNING:
        log.warning(
            "%s: the certificate expires on %s: renew it with `quorate certs --renew`",
            where,
            end.date(),
        )


def _check_signed(
    where: str, chain: list[x509.Certificate], truststore: str, roots: list[x509.Certificate]
) -> None:
    """Check that the chain leads to an authority. The peers check all the rest at each
    connection.
    """
    issuers = [*chain[1:], *roots]
    for certificate in chain:
        if certificate in roots:
            return
        if not any(_issued(certificate, issuer) for issuer in issuers):
            raise SecurityError(
                f"{where}: {certificate.subject.rfc4514_string()} was not signed by the authority "
                f"in {truststore}: use the truststore that was made with it, or make certificates "
                "of one authority for all nodes with `quorate certs`"
            )


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _principal(certificate: x509.Certificate) -> Principal:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = frozenset(extension.value.get_values_for_type(x509.DNSName))
    except x509.ExtensionNotFound:
        names = frozenset()
    common_names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return Principal(names, str(common_names[0].value) if common_names else "")


def _pem(certificates: list[x509.Certificate]) -> bytes:
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def _key_pem(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
