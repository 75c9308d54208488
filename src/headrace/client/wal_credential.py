"""A token that is asked for: for clients whose tokens come from somewhere else than a file."""

from __future__ import annotations

from collections.abc import Callable

from headrace.client.credential import TOKEN_BYTES_MAX, Credential
from headrace.errors import ConfigInvalid


class AskedCredential(Credential):
    """The token that ``ask`` returns, asked for before each call. ``ask`` must not block."""

    def __init__(self, ask: Callable[[], str]) -> None:
        super().__init__("")
        self._ask = ask

    def __repr__(self) -> str:
        """Return that it is asked for, never the token."""
        return "AskedCredential()"

    def token(self) -> str:
        """Return the token as it is now; ConfigInvalid for what can't be one."""
        token = self._ask()
        if not token or len(token) > TOKEN_BYTES_MAX or not all("!" <= one <= "~" for one in token):
            raise ConfigInvalid(
                "what was asked for a token gave none", hint="A token is printable ASCII without spaces."
            )
        return token
