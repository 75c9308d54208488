"""``--auth-jwks``, ``--auth-issuer`` and ``--auth-audience`` of a server, as a verifier that is kept fresh while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from headrace.access.key_fetch import FileKeyFetch, key_fetch_of
from headrace.access.key_source import KeySource, KeyTerms
from headrace.access.tokens import TokenTerms, TokenVerifier
from headrace.errors import ConfigInvalid, Usage
from headrace.runtime.clock import Clock


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whose tokens are taken. ``insecure``: the key set may come over plain http from another machine."""

    jwks: str
    terms: TokenTerms = TokenTerms()
    keys: KeyTerms = KeyTerms()
    insecure: bool = False


def auth_settings(
    jwks: str | None, issuer: str | None, audience: str | None, *, insecure: bool = False
) -> AuthSettings | None:
    """Return what the options mean together, None if nobody is asked for a token; Usage."""
    if jwks is None:
        if issuer is not None or audience is not None:
            raise Usage("--auth-issuer and --auth-audience need --auth-jwks", hint="Give --auth-jwks.")
        return None
    key_fetch_of(jwks, insecure=insecure)  # a mistake in it is told before anything is opened
    return AuthSettings(jwks=jwks, terms=TokenTerms(issuer=issuer, audience=audience), insecure=insecure)


@asynccontextmanager
async def verifying(
    settings: AuthSettings | None, *, clock: Clock | None = None
) -> AsyncIterator[TokenVerifier | None]:
    """Run the block with the verifier of ``settings``, or with None, which asks nobody.

    Keys that can't be had over the network yet are no error: calls get 503 until they are there. A file that can't be used
    is one: ConfigInvalid.
    """
    if settings is None:
        yield None
        return
    fetch = key_fetch_of(settings.jwks, insecure=settings.insecure)
    async with KeySource(fetch, terms=settings.keys, clock=clock) as keys:
        if isinstance(fetch, FileKeyFetch) and keys.failed is not None:
            raise ConfigInvalid(f"--auth-jwks {settings.jwks}: {keys.failed}", hint="Check the path.")
        yield TokenVerifier(keys, settings.terms, clock=clock)
