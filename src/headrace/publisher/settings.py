"""``agent.toml``: who the agent is, which feeds it fills, from which database, to which server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.client.credential import read_token
from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.errors import ConfigInvalid, InvalidRequest
from headrace.publisher.dsn import Dsn, find_dsn
from headrace.runtime.settings import Settings, load_toml, parse_duration

SERVER_DEFAULT: Final = "http://127.0.0.1:8470"


class AgentSettings(Settings, frozen=True):
    """The agent's settings, named with hyphens in the file; an unknown key is refused.

    ``agent_id`` is permanent once used: rows and feeds carry it. The source is ``dsn``, else the first line of ``dsn_file``,
    else ``HEADRACE_DSN``. ``retention`` is how long processed rows stay in the outbox (``48h``), from which a feed that lost
    entries can still be filled again.
    """

    agent_id: str
    feeds: tuple[str, ...]
    server: str | None = None
    dsn: str | None = None
    dsn_file: str | None = None
    retention: str = "48h"
    token_file: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no agent can run with: ConfigInvalid names the key."""
        try:
            check_agent_id(self.agent_id)
            for feed in self.feeds:
                check_feed_id(feed)
        except InvalidRequest as error:
            raise ConfigInvalid(error.detail, hint=error.advice) from None
        if not self.feeds or len(set(self.feeds)) < len(self.feeds):
            raise ConfigInvalid("feeds: name each feed once", hint='Write feeds = ["shop"].')
        parse_duration(self.retention, "retention")
        if self.dsn is not None and self.dsn_file is not None:
            raise ConfigInvalid("dsn and dsn-file are both given", hint="Keep one of the two.")

    def __repr__(self) -> str:
        """Show no DSN: it may hold a password."""
        return f"AgentSettings(agent_id={self.agent_id!r}, feeds={self.feeds!r}, server={self.server!r})"

    def __rich_repr__(self) -> object:  # type: ignore[override]  # msgspec's own shows every field, the DSN too
        """Show no DSN in rich's tracebacks either."""
        yield "agent_id", self.agent_id
        yield "feeds", self.feeds
        yield "server", self.server

    @property
    def retention_s(self) -> float:
        """How long processed rows stay in the outbox, in seconds."""
        return parse_duration(self.retention, "retention")

    def find_dsn(self, environment: Mapping[str, str]) -> Dsn:
        """Return the source's DSN; see :func:`headrace.publisher.dsn.find_dsn` for the errors."""
        return find_dsn(self.dsn, None if self.dsn_file is None else Path(self.dsn_file), environment)

    def find_server(self, environment: Mapping[str, str]) -> str:
        """Return the server's address: ``server``, else ``HEADRACE_SERVER``, else the one on this machine."""
        return self.server or environment.get("HEADRACE_SERVER") or SERVER_DEFAULT

    def find_token(self) -> str | None:
        """Return the token from ``token-file``, else from ``HEADRACE_TOKEN``, None if there is none; ConfigInvalid."""
        return read_token(None if self.token_file is None else Path(self.token_file))


def load_agent_settings(path: Path) -> AgentSettings:
    """Read ``path``; ConfigInvalid names the file, and the key that is unknown, missing or wrong."""
    return load_toml(path, AgentSettings)
