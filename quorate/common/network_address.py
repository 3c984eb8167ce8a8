"""Decides which IP addresses count as one client's address."""

import ipaddress
from typing import Final

_NETWORK_BITS: Final = 64
"""The part of an IPv6 address that is one customer's. It has 2**64 addresses for one machine."""


def plain_address(address: str) -> str:
    """Return the address as an operator would write it: without a zone, and IPv4 as IPv4."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(parsed)


def network_of(address: str) -> str:
    """Return what counts as one address: an IPv4 address, or the network of an IPv6 address."""
    plain = plain_address(address)
    if ":" not in plain:
        return plain
    try:
        return str(ipaddress.ip_network((plain, _NETWORK_BITS), strict=False))
    except ValueError:
        return plain
