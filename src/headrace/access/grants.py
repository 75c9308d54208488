"""What a token allows: roles, feeds, tenant. Pure: claims in, answers out; whatever is missing or unknown allows nothing.

::

    role          needs            may
    publisher     feeds            register as the publisher of these feeds and append to them
    listener      feeds            read these feeds
    replication   tenant           stream the log of that tenant (RFC-010 §3); of its feeds only those named, if any are
    admin                          everything, of every tenant
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from headrace.access.patterns import PATTERNS_MAX, check_pattern, matches_any
from headrace.entries.feed import check_tenant
from headrace.errors import Forbidden, InvalidRequest

ANONYMOUS: Final = "anonymous"
"""Who asks without a name of their own."""
SUBJECT_CHARS_MAX: Final = 200
ROLES_MAX: Final = 100
"""Most roles that a token may name; those of other systems among them mean nothing here."""


class Role(StrEnum):
    """What a token may be used for."""

    PUBLISHER = "publisher"
    LISTENER = "listener"
    REPLICATION = "replication"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    """What its bearer may do.

    ``feeds`` are patterns (``*`` stands for any characters); None where the token names none, which for a publisher or a
    listener is none at all. ``tenant``: the only one whose feeds it is good for; None is any, except for replication, which
    needs one. An admin's ``feeds`` and ``tenant`` mean nothing. ``expires_at``: seconds since 1970, None for never.
    ``feed_filters`` and ``tenant_filter``: what of it the bearer asked to read; apart from the rest, so that no filter can
    ever stand in for a right.
    """

    subject: str = ANONYMOUS
    roles: frozenset[Role] = frozenset()
    feeds: tuple[str, ...] | None = None
    tenant: str | None = None
    expires_at: float | None = None
    feed_filters: tuple[tuple[str, ...], ...] = ()
    tenant_filter: str | None = None

    def may_publish(self, feed: str, tenant: str | None = None) -> bool:
        """May it register as the publisher of ``feed`` and append? ``tenant`` is the feed's; None: it is not known."""
        return self.may_administer() or self._has(Role.PUBLISHER, feed, tenant)

    def may_listen(self, feed: str, tenant: str | None = None) -> bool:
        """May it read ``feed``? ``tenant`` is the feed's; None: it is not known, so that a token of one tenant may not."""
        return self._asked_for(feed, tenant) and (
            self.may_administer() or self._has(Role.LISTENER, feed, tenant)
        )

    def may_replicate(self, tenant: str, feed: str) -> bool:
        """May it stream the entries of ``feed``, which belongs to ``tenant``?"""
        return self._asked_for(feed, tenant) and (
            self.may_administer()
            or (
                Role.REPLICATION in self.roles
                and self.tenant == tenant
                and (self.feeds is None or matches_any(self.feeds, feed))
            )
        )

    def may_see(self, feed: str, tenant: str) -> bool:
        """May it know that ``feed`` exists, and its bounds? So may whoever may do anything with it."""
        return (
            self.may_publish(feed, tenant)
            or self.may_listen(feed, tenant)
            or self.may_replicate(tenant, feed)
        )

    def may_administer(self) -> bool:
        """May it see and change what belongs to no feed alone, and take over, release and configure any?"""
        return Role.ADMIN in self.roles

    def narrowed(self, *, tenant: str | None = None, feeds: Sequence[str] | None = None) -> Grant:
        """Return this grant with a filter on it: what it then allows to read, it allows without it too.

        Raises Forbidden for a tenant that the grant is not good for, InvalidRequest for what can be no name or pattern.
        """
        found = self
        if tenant is not None:
            check_tenant(tenant, "tenant")
            own = self.tenant_filter or (None if self.may_administer() else self.tenant)
            if own not in {None, tenant}:
                raise Forbidden(f"this token is not good for the tenant {tenant!r}", tenant=tenant)
            found = replace(found, tenant_filter=tenant)
        if feeds is not None:
            patterns = tuple(check_pattern(pattern) for pattern in feeds)
            found = replace(found, feed_filters=(*found.feed_filters, patterns))
        return found

    def _has(self, role: Role, feed: str, tenant: str | None) -> bool:
        return (
            role in self.roles
            and (self.tenant is None or self.tenant == tenant)
            and self.feeds is not None
            and matches_any(self.feeds, feed)
        )

    def _asked_for(self, feed: str, tenant: str | None) -> bool:
        if self.tenant_filter not in {None, tenant}:
            return False
        return all(matches_any(patterns, feed) for patterns in self.feed_filters)


EVERYTHING: Final = Grant(roles=frozenset({Role.ADMIN}))
"""What everybody has at a server that asks nobody who they are."""


def grant_of(claims: Mapping[str, Any], expires_at: float | None) -> Grant:
    """Return what checked ``claims`` allow; ValueError, naming the claim, where one is not as it must be.

    Roles are in ``roles`` (a list) and in ``role`` (one, RFC-010 §3); those that are not ours mean nothing.
    """
    subject = claims.get("sub", ANONYMOUS)
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_CHARS_MAX:
        raise ValueError(f"sub is no name of 1 to {SUBJECT_CHARS_MAX} characters")
    tenant = claims.get("tenant")
    try:
        if tenant is not None:
            check_tenant(_text(tenant, "tenant"), "tenant")
        feeds = None if claims.get("feeds") is None else _patterns(claims["feeds"])
    except InvalidRequest as error:
        raise ValueError(error.detail) from None
    return Grant(subject, _roles(claims), feeds, tenant, expires_at)


def require(allowed: bool, what: str) -> None:
    """Raise Forbidden, naming ``what`` was asked for, unless it is ``allowed``."""
    if not allowed:
        raise Forbidden(f"this token does not allow it to {what}")


def _roles(claims: Mapping[str, Any]) -> frozenset[Role]:
    named = claims.get("roles", [])
    if not isinstance(named, list) or len(named) > ROLES_MAX:
        raise ValueError(f"roles is no list of up to {ROLES_MAX} names")
    named = [_text(name, "roles") for name in named]
    if claims.get("role") is not None:
        named.append(_text(claims["role"], "role"))
    return frozenset(role for role in Role if role in named)


def _patterns(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or len(given) > PATTERNS_MAX:
        raise ValueError(f"feeds is no list of up to {PATTERNS_MAX} patterns")
    return tuple(check_pattern(_text(pattern, "feeds")) for pattern in given)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} holds what is no text")
    return value
