"""Who is at the other end of a connection, and whether still."""

import ipaddress

LEFT = "left"
"""What the state of a request calls the event that its client has gone."""


def network(host: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 of an IPv6 one, as whoever has one has all of it."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv4Address):
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, 64), strict=False))
