"""A certificate authority in a folder, as `quorate certs` and `quorate up` keep it.

FOLDER/truststore.pem   the authority's certificate: every node gets a copy
FOLDER/ca-key.pem       the authority's private key: stays where certificates are made
FOLDER/voter-1.pem …    keystores: private key and certificate chain of one node
"""

import datetime
import ipaddress
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quorate.common.files.private_files import make_private_folder
from quorate.common.tls.identity import Role, SecurityError, node_name, role_name

TRUSTSTORE_FILE: Final = "truststore.pem"
CA_KEY_FILE: Final = "ca-key.pem"
CA_DAYS: Final = 3650
NODE_DAYS: Final = 365
_CLOCK_SKEW: Final = datetime.timedelta(hours=1)


class CertificateAuthority:
    """Signs certificates of nodes and of people."""

    def __init__(
        self, folder: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> None:
        self.folder = folder
        self._key = key
        self._certificate = certificate

    @classmethod
    def open(cls, folder: Path, *, days: int = CA_DAYS) -> "CertificateAuthority":
        """Open the authority of the folder, or create one that is valid for ``days``.

        Raises:
            SecurityError: the folder cannot be used, or half of the authority is missing.
        """
        try:
            make_private_folder(folder)
            if not (folder / CA_KEY_FILE).exists() and not (folder / TRUSTSTORE_FILE).exists():
                _make_authority(folder, days)
            return cls._load(folder)
        except OSError as error:
            raise SecurityError(f"cannot use {folder}: {error.strerror}") from error

    @classmethod
    def _load(cls, folder: Path) -> "CertificateAuthority":
        for name in (CA_KEY_FILE, TRUSTSTORE_FILE):
            if not (folder / name).exists():
                raise SecurityError(
                    f"{folder} holds half an authority: {name} is missing. Put it back, or make a "
                    "new authority in another folder (every node then needs new certificates)"
                )
        try:
            key = serialization.load_pem_private_key((folder / CA_KEY_FILE).read_bytes(), None)
            certificate = x509.load_pem_x509_certificate((folder / TRUSTSTORE_FILE).read_bytes())
        except (ValueError, TypeError) as error:
            raise SecurityError(f"the authority in {folder} cannot be read: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or (
            key.public_key() != certificate.public_key()
        ):
            raise SecurityError(
                f"{folder / CA_KEY_FILE} is not the key of {folder / TRUSTSTORE_FILE}"
            )
        return cls(folder, key, certificate)

    @property
    def truststore(self) -> Path:
        return self.folder / TRUSTSTORE_FILE

    def issue(
        self,
        stem: str,
        names: Sequence[str],
        *,
        days: int = NODE_DAYS,
        hosts: Iterable[str] = (),
        replace: bool = False,
    ) -> bool:
        """Make the keystore ``stem``.pem with these DNS names; return False if it exists already.

        ``hosts`` are host names and IP addresses in addition. With ``replace`` a new key and
        certificate take the place of the existing ones.

        Raises:
            SecurityError: the folder cannot be written.
        """
        path = self.folder / f"{stem}.pem"
        if path.exists() and not replace:
            return False
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(stem, key.public_key(), [*names, *hosts], days)
        content = _key_pem(key) + certificate.public_bytes(serialization.Encoding.PEM)
        try:
            write_private(path, content, replace=replace)
        except OSError as error:
            raise SecurityError(f"cannot write {path}: {error.strerror}") from error
        return True

    def issue_node(
        self,
        role: Role,
        node_id: int,
        *,
        days: int = NODE_DAYS,
        hosts: Iterable[str] = (),
        replace: bool = False,
    ) -> bool:
        """Issue the keystore of one voter or broker, as ``issue`` does."""
        names = [node_name(role, node_id), role_name(role)]
        return self.issue(f"{role}-{node_id}", names, days=days, hosts=hosts, replace=replace)

    def issue_admin(self, name: str, *, days: int = NODE_DAYS, replace: bool = False) -> bool:
        """Issue the keystore of a person, whose name is the common name, as ``issue`` does."""
        return self.issue(name, [role_name(Role.ADMIN)], days=days, replace=replace)

    def _sign(
        self, common_name: str, public_key: ec.EllipticCurvePublicKey, names: list[str], days: int
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        signer = self._certificate.public_key()
        assert isinstance(signer, ec.EllipticCurvePublicKey)
        return (
            x509.CertificateBuilder()
            .subject_name(_subject(common_name))
            .issuer_name(self._certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(map(_general_name, names)), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )


def write_private(path: Path, content: bytes, *, replace: bool = False) -> None:
    """Write a file that only its owner can read.

    Raises:
        FileExistsError: it is there, and ``replace`` is not set.
        OSError: it cannot be written.
    """
    target = path.with_name(f"{path.name}.tmp") if replace else path
    if replace:
        target.unlink(missing_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    if replace:
        target.replace(path)


def _make_authority(folder: Path, days: int) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    # The name is unique: certificates of two authorities are told apart by their issuer.
    subject = _subject(f"Quorate development authority {secrets.token_hex(4)}")
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(folder / CA_KEY_FILE, _key_pem(key))
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / TRUSTSTORE_FILE).write_bytes(pem)


def _subject(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
