"""``agent.toml``: who the agent is, which feeds it fills, from which database, to which server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from headrace.access.tls import TlsSettings
from headrace.access.tokens import TokenTerms
from headrace.client.credential import Credential, read_token
from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.errors import ConfigInvalid, InvalidRequest
from headrace.publisher.snapshot.settings import MAX_AGE_S_MIN, SnapshotSettings, check_url, parse_listen
from headrace.runtime.dsn import Dsn, find_dsn
from headrace.runtime.health import HealthTerms
from headrace.runtime.settings import Settings, load_toml, parse_duration, parse_size

SERVER_DEFAULT: Final = "http://127.0.0.1:8470"


class AgentSettings(Settings, frozen=True):
    """The agent's settings, named with hyphens in the file; an unknown key is refused.

    ``agent_id`` is permanent once used: rows and feeds carry it. The source is ``dsn``, else the first line of ``dsn_file``,
    else ``HEADRACE_DSN``. ``retention`` is how long processed rows stay in the outbox (``48h``), from which a feed that lost
    entries can still be filled again. ``health`` (HOST:PORT) is where health is served; a feed that does not move for
    ``stalled_after`` though rows wait is stuck (docs/howto/health.md). A server that does not answer for ``server_timeout``
    is taken to be away: so long may a call hang on a line that is dead without anybody being told. ``ca_file`` (PEM) holds
    the authorities of which the server's certificate may be, else that of ``HEADRACE_TLS_CA``. The keys for snapshots
    (docs/howto/snapshots.md) mean something with ``snapshot_listen`` only.
    """

    agent_id: str
    feeds: tuple[str, ...]
    server: str | None = None
    dsn: str | None = None
    dsn_file: str | None = None
    retention: str = "48h"
    token_file: str | None = None
    ca_file: str | None = None
    health: str | None = None
    stalled_after: str = "60s"
    server_timeout: str = "30s"
    snapshot_listen: str | None = None
    snapshot_url: str | None = None
    snapshot_dir: str = "headrace-snapshots"
    snapshot_interval: str | None = None
    snapshot_max_age: str = "10m"
    snapshot_bytes_max: str = "10g"
    snapshot_sql: dict[str, str] = msgspec.field(default_factory=dict)
    snapshot_token_file: str | None = None
    snapshot_tls_cert: str | None = None
    snapshot_tls_key: str | None = None
    snapshot_insecure: bool = False
    auth_jwks: str | None = None
    auth_issuer: str | None = None
    auth_audience: str | None = None

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
        HealthTerms.parse(self.health, self.stalled_after)
        if self.server_timeout_s <= 0:
            raise ConfigInvalid("server-timeout: is no time", hint="Write 30s.")
        if self.dsn is not None and self.dsn_file is not None:
            raise ConfigInvalid("dsn and dsn-file are both given", hint="Keep one of the two.")
        self._check_snapshots()

    def _check_snapshots(self) -> None:
        if self.snapshot_listen is None:
            if self.snapshot_url is not None or self.snapshot_interval is not None:
                raise ConfigInvalid(
                    "snapshot-listen is missing", hint="Without it no snapshot is served: write HOST:PORT."
                )
            return
        parse_listen(self.snapshot_listen)
        if self.snapshot_url is not None:
            check_url(self.snapshot_url)
        age_s = parse_duration(self.snapshot_max_age, "snapshot-max-age")
        if age_s < MAX_AGE_S_MIN:
            raise ConfigInvalid(
                f"snapshot-max-age: {self.snapshot_max_age!r} is less than {MAX_AGE_S_MIN:g} s: who waits "
                "for a snapshot would find it too old"
            )
        if (
            self.snapshot_interval is not None
            and parse_duration(self.snapshot_interval, "snapshot-interval") < 1
        ):
            raise ConfigInvalid("snapshot-interval: is less than 1 s", hint="Write 6h.")
        if parse_size(self.snapshot_bytes_max, "snapshot-bytes-max") <= 0:
            raise ConfigInvalid("snapshot-bytes-max: nothing would fit")
        unknown = sorted(set(self.snapshot_sql) - set(self.feeds))
        if unknown:
            raise ConfigInvalid(
                f"snapshot-sql: {unknown[0]} is none of the feeds", hint="Name feeds of this agent."
            )
        if (self.snapshot_tls_cert is None) != (self.snapshot_tls_key is None):
            raise ConfigInvalid(
                "snapshot-tls-cert and snapshot-tls-key belong together", hint="Give both, or none."
            )

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

    @property
    def server_timeout_s(self) -> float:
        """How long an answer of the server may take, in seconds."""
        return parse_duration(self.server_timeout, "server-timeout")

    @property
    def ca_path(self) -> Path | None:
        """The file of ``ca_file``."""
        return None if self.ca_file is None else Path(self.ca_file)

    @property
    def health_terms(self) -> HealthTerms:
        """Where the agent tells its health, and when a feed's relay counts as stuck."""
        return HealthTerms.parse(self.health, self.stalled_after)

    def find_snapshots(self) -> SnapshotSettings | None:
        """Return how snapshots are to be served, None if they are not; ConfigInvalid for a token file without a token."""
        if self.snapshot_listen is None:
            return None
        token = None if self.snapshot_token_file is None else read_token(Path(self.snapshot_token_file))
        cert, key = self.snapshot_tls_cert, self.snapshot_tls_key
        interval_s = None
        if self.snapshot_interval is not None:
            interval_s = parse_duration(self.snapshot_interval, "snapshot-interval")
        # A snapshot that is made on an interval is for who comes before the next one.
        max_age_s = max(parse_duration(self.snapshot_max_age, "snapshot-max-age"), interval_s or 0.0)
        return SnapshotSettings(
            listen=parse_listen(self.snapshot_listen),
            url=self.snapshot_url,
            folder=Path(self.snapshot_dir),
            interval_s=interval_s,
            max_age_s=max_age_s,
            bytes_max=parse_size(self.snapshot_bytes_max, "snapshot-bytes-max"),
            sql=self.snapshot_sql,
            token=token,
            jwks=self.auth_jwks,
            terms=TokenTerms(issuer=self.auth_issuer, audience=self.auth_audience),
            tls=None if cert is None or key is None else TlsSettings(cert=Path(cert), key=Path(key)),
            insecure=self.snapshot_insecure,
        )

    def find_dsn(self, environment: Mapping[str, str]) -> Dsn:
        """Return the source's DSN; see :func:`headrace.runtime.dsn.find_dsn` for the errors."""
        return find_dsn(self.dsn, None if self.dsn_file is None else Path(self.dsn_file), environment)

    def find_server(self, environment: Mapping[str, str]) -> str:
        """Return the server's address: ``server``, else ``HEADRACE_SERVER``, else the one on this machine."""
        return self.server or environment.get("HEADRACE_SERVER") or SERVER_DEFAULT

    def find_credential(self) -> Credential | None:
        """Return the token of ``token-file``, else of ``HEADRACE_TOKEN``, None if there is none; ConfigInvalid."""
        return Credential.find(None if self.token_file is None else Path(self.token_file))


def load_agent_settings(path: Path) -> AgentSettings:
    """Read ``path``; ConfigInvalid names the file, and the key that is unknown, missing or wrong."""
    return load_toml(path, AgentSettings)
