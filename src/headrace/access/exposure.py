"""What an address to listen on lays open, and to whom: the rule that without tokens only this machine is served. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from headrace.errors import Usage

_LOCALHOST: Final = "localhost"


def is_loopback(address: str) -> bool:
    """Is this numeric address of this machine alone? False for what is no address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def is_loopback_name(host: str) -> bool:
    """Does ``host``, as written, name this machine alone (``localhost``, a loopback address)? Nothing is looked up."""
    return host.lower().rstrip(".") == _LOCALHOST or is_loopback(host.strip("[]"))


def judge_exposure(
    at: str, addresses: Sequence[str], *, authenticated: bool, encrypted: bool, insecure: bool
) -> str | None:
    """Return what to log loudly about listening on ``at``, None if there is nothing to say.

    ``addresses`` is all that its host resolves to. ``authenticated``: callers need a token; ``encrypted``: they speak TLS.
    Raises Usage where other machines could call without a token and nobody said ``insecure``; an empty list could be any.
    """
    if addresses and all(map(is_loopback, addresses)):
        return None
    if not authenticated:
        if not insecure:
            raise Usage(
                f"{at} can be reached from other machines, and this server asks nobody who they are",
                hint="Give --auth-jwks, or listen on 127.0.0.1, or give --insecure if the network is yours alone.",
            )
        return f"--insecure: whoever reaches {at} can read and write every feed"
    if not encrypted:
        return f"{at} can be reached from other machines without TLS: tokens and entries pass in clear"
    return None
