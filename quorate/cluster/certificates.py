"""Certificates of a local cluster, in DIR/certs: made with it, used unless told otherwise."""

from pathlib import Path
from typing import Final

from quorate.cluster.layout import CERTS_FOLDER, Node, load_nodes
from quorum.certificate_authority import CA_DAYS, TRUSTSTORE_FILE, CertificateAuthority
from quorum.keystore import load_security
from quorum.security import Role, Security
from quorum.security_config import PLAINTEXT, VOTER_SECURITY

ADMIN: Final = "admin"


def make_certificates(folder: Path, nodes: list[Node]) -> None:
    """An authority, a certificate for each node, and one for the commands; good for years.

    Raises:
        SecurityError: the folder cannot be written.
    """
    authority = CertificateAuthority.open(folder / CERTS_FOLDER)
    for node in nodes:
        role = Role.VOTER if node.kind == "quorum" else Role.BROKER
        authority.issue_node(role, node.id, days=CA_DAYS)
    authority.issue_admin(ADMIN, days=CA_DAYS)


def admin_security(folder: Path) -> Security | None:
    """With what commands prove themselves to the quorum in ``folder``; None: it speaks plain text.

    Raises:
        ConfigError: a configuration file or a certificate cannot be used.
    """
    for node in load_nodes(folder.resolve()):
        if node.kind == "quorum" and node.config.get(VOTER_SECURITY.protocol.name) == PLAINTEXT:
            return None
    keystore = folder / CERTS_FOLDER / f"{ADMIN}.pem"
    truststore = folder / CERTS_FOLDER / TRUSTSTORE_FILE
    return load_security("--data", keystore, "--data", truststore, Role.ADMIN)
