"""What a browser's request must be like, so that no other site acts through it. Pure."""

import ipaddress
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

SECURITY_HEADERS: Final = MappingProxyType(
    {
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
            "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
)
"""The headers of every answer. Scripts and styles come from this broker alone, and none is inline.
"""


def host_of(authority: str) -> str:
    """Return the host of ``host:port``, without brackets; empty if it is malformed."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def may_be_named(authority: str, allowed: Iterable[str]) -> bool:
    """Return whether the console may be opened under the name of a Host header.

    Another site could have a name of its own lead to this address (DNS rebinding). Its pages would
    then count as pages of this console. They never have an address for a name.
    """
    host = host_of(authority)
    if host == "localhost" or host in {one.strip().lower() for one in allowed}:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_from_here(headers: Mapping[str, str]) -> bool:
    """Return whether a page of this console sent a form.

    Browsers say where a form comes from in Origin, and newer ones in Sec-Fetch-Site. What says
    neither is no browser, and needs a good token all the same.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None and site != "same-origin":
        return False
    origin = headers.get("Origin")
    if origin is None:
        return True
    return urlsplit(origin).netloc.lower() == headers.get("Host", "").lower() != ""
