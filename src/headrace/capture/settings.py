"""``capture.toml``: which database is captured, what of it, into which feed of which server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from headrace.capture.changefeed import Changefeed, load_changefeed
from headrace.capture.selection import ColumnRules, Selection
from headrace.client.credential import Credential
from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.errors import ConfigInvalid, DsnInvalid, InvalidRequest
from headrace.runtime.dsn import Dsn, find_dsn
from headrace.runtime.health import HealthTerms
from headrace.runtime.settings import Settings, load_toml, parse_duration, parse_size

SERVER_DEFAULT: Final = "http://127.0.0.1:8470"
GRPC_DEFAULT: Final = "127.0.0.1:8471"

SCHEMES: Final = ("mariadb", "mysql")
"""The same protocol. That a server is no MariaDB is found out by asking it."""

CHUNK_ROWS_MAX: Final = 1_000_000
CHUNK_BYTES_MIN: Final = 64 << 10
REPLICA_SERVER_ID_MAX: Final = (1 << 32) - 1
INTERVAL_S_MIN: Final = 0.1
"""WATERMARKs come no more often: each is an append of its own."""


class Cascades(StrEnum):
    """What becomes of tables whose rows a foreign key changes without a line in the binlog."""

    REFUSE = "refuse"
    ACCEPT = "accept"


class InitialSnapshot(StrEnum):
    """Whether a feed begins with the rows that are there."""

    WHEN_NEW = "when-new"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Watermarks:
    """How often a WATERMARK comes, in seconds: while there are changes, and without any."""

    interval_s: float
    idle_interval_s: float


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """Bounds of one chunk of a copied table: what is read in one transaction, and held in memory."""

    rows_max: int
    bytes_max: int


class CaptureSettings(Settings, frozen=True):
    """The settings of one capture, named with hyphens in the file; an unknown key is refused.

    docs/reference/capture.md says what each means. ``feed`` and ``agent_id`` are permanent once used: the place in the
    binlog is kept in the feed, under the agent's name. The source is ``dsn``, else the first line of ``dsn_file``, else
    ``HEADRACE_DSN``. With ``changefeed`` (a file of TiCDC's form) the tables are those of its ``[filter]``.
    """

    feed: str
    agent_id: str = "capture"
    server: str | None = None
    grpc: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    dsn: str | None = None
    dsn_file: str | None = None
    state_dir: str = "headrace-capture"
    tables: tuple[str, ...] | None = None
    case_sensitive: bool | None = None
    columns: tuple[str, ...] = ()
    exclude_columns: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    changefeed: str | None = None
    cascades: Cascades = Cascades.REFUSE
    initial_snapshot: InitialSnapshot = InitialSnapshot.WHEN_NEW
    longest_outage: str = "24h"
    watermark_interval: str = "1s"
    watermark_idle_interval: str = "10s"
    chunk_rows: int = 5000
    chunk_bytes_max: str = "8m"
    replica_server_id: int | None = None
    health: str | None = None
    stalled_after: str = "60s"

    def __post_init__(self) -> None:
        """Refuse what no capture can run with: ConfigInvalid names the key."""
        try:
            check_feed_id(self.feed)
            check_agent_id(self.agent_id)
        except InvalidRequest as error:
            raise ConfigInvalid(error.detail, hint=error.advice) from None
        if self.dsn is not None and self.dsn_file is not None:
            raise ConfigInvalid("dsn and dsn-file are both given", hint="Keep one of the two.")
        HealthTerms.parse(self.health, self.stalled_after)
        self._check_choice()
        self._check_sizes()
        if self.watermarks.interval_s < INTERVAL_S_MIN:
            raise ConfigInvalid(f"watermark-interval: is less than {INTERVAL_S_MIN:g} s", hint="Write 1s.")
        if self.watermarks.idle_interval_s < self.watermarks.interval_s:
            raise ConfigInvalid("watermark-idle-interval: is less than watermark-interval")
        if self.longest_outage_s <= 0:
            raise ConfigInvalid("longest-outage: no outage could be survived", hint="Write 24h.")

    def _check_choice(self) -> None:
        if self.changefeed is not None:
            for name, given in (("tables", self.tables), ("case-sensitive", self.case_sensitive)):
                if given is not None:
                    raise ConfigInvalid(
                        f"{name} and changefeed are both given",
                        hint=f"The changefeed file says it: take {name} out.",
                    )
        if self.tables is not None and not self.tables:
            raise ConfigInvalid("tables: no table would be captured", hint='Write tables = ["shop.*"].')
        Selection(self.tables or (), self._rules())

    def _check_sizes(self) -> None:
        if not 1 <= self.chunk_rows <= CHUNK_ROWS_MAX:
            raise ConfigInvalid(f"chunk-rows: {self.chunk_rows} is not from 1 to {CHUNK_ROWS_MAX}")
        if self.chunk_size.bytes_max < CHUNK_BYTES_MIN:
            raise ConfigInvalid(f"chunk-bytes-max: is less than {CHUNK_BYTES_MIN} bytes", hint="Write 8m.")
        number = self.replica_server_id
        if number is not None and not 1 <= number <= REPLICA_SERVER_ID_MAX:
            raise ConfigInvalid(f"replica-server-id: {number} is not from 1 to {REPLICA_SERVER_ID_MAX}")

    def __repr__(self) -> str:
        """Show no DSN: it may hold a password."""
        return f"CaptureSettings(feed={self.feed!r}, agent_id={self.agent_id!r}, server={self.server!r})"

    def __rich_repr__(self) -> object:  # type: ignore[override]  # msgspec's own shows every field, the DSN too
        """Show no DSN in rich's tracebacks either."""
        yield "feed", self.feed
        yield "agent_id", self.agent_id
        yield "server", self.server

    @property
    def ca_path(self) -> Path | None:
        """The file of ``ca_file``, for clients over HTTP and gRPC alike."""
        return None if self.ca_file is None else Path(self.ca_file)

    @property
    def health_terms(self) -> HealthTerms:
        """Where capture tells its health, and when it counts as stuck."""
        return HealthTerms.parse(self.health, self.stalled_after)

    @property
    def longest_outage_s(self) -> float:
        """The longest time, in seconds, that capture may stand still without losing its place."""
        return parse_duration(self.longest_outage, "longest-outage")

    @property
    def watermarks(self) -> Watermarks:
        """How often a WATERMARK comes."""
        return Watermarks(
            parse_duration(self.watermark_interval, "watermark-interval"),
            parse_duration(self.watermark_idle_interval, "watermark-idle-interval"),
        )

    @property
    def chunk_size(self) -> ChunkSize:
        """How much of a table is copied at once."""
        return ChunkSize(self.chunk_rows, parse_size(self.chunk_bytes_max, "chunk-bytes-max"))

    @property
    def replica_name(self) -> str:
        """What names this capture among a server's replicas where ``replica_server_id`` does not."""
        return f"{self.feed}/{self.agent_id}"

    def find_changefeed(self) -> Changefeed:
        """Return what the changefeed file says, or what it says without one; ConfigInvalid names file and word."""
        if self.changefeed is not None:
            return load_changefeed(Path(self.changefeed))
        return Changefeed(
            rules=Changefeed().rules if self.tables is None else self.tables,
            case_sensitive=bool(self.case_sensitive),
        )

    def find_selection(self) -> Selection:
        """Return what is captured: the tables and column selectors of the changefeed, and the rules here; ConfigInvalid."""
        changefeed = self.find_changefeed()
        rules = msgspec.structs.replace(self._rules(), selectors=changefeed.selectors)
        return Selection(changefeed.rules, rules, case_sensitive=changefeed.case_sensitive)

    def find_dsn(self, environment: Mapping[str, str]) -> Dsn:
        """Return the source's DSN; see :func:`headrace.runtime.dsn.find_dsn` for the errors.

        DsnInvalid too if it is of a database that is not captured.
        """
        dsn = find_dsn(self.dsn, None if self.dsn_file is None else Path(self.dsn_file), environment)
        if dsn.scheme not in SCHEMES:
            raise DsnInvalid(
                f"{dsn.scheme}:// can't be captured", hint="Write mariadb://USER:PASSWORD@HOST:PORT/."
            )
        return dsn

    def find_server(self, environment: Mapping[str, str]) -> str:
        """Return the server's address: ``server``, else ``HEADRACE_SERVER``, else the one on this machine."""
        return self.server or environment.get("HEADRACE_SERVER") or SERVER_DEFAULT

    def find_grpc(self, environment: Mapping[str, str]) -> str:
        """Return the server's gRPC address: ``grpc``, else ``HEADRACE_GRPC``, else the one on this machine."""
        return self.grpc or environment.get("HEADRACE_GRPC") or GRPC_DEFAULT

    def find_credential(self) -> Credential | None:
        """Return the token of ``token-file``, else of ``HEADRACE_TOKEN``, None if there is none; ConfigInvalid."""
        return Credential.find(None if self.token_file is None else Path(self.token_file))

    def _rules(self) -> ColumnRules:
        return ColumnRules(columns=self.columns, exclude=self.exclude_columns, mask=self.mask)


def load_capture_settings(
    path: Path,
    *,
    columns: tuple[str, ...] = (),
    exclude_columns: tuple[str, ...] = (),
    mask: tuple[str, ...] = (),
) -> CaptureSettings:
    """Read ``path``, and add the patterns given to those in it.

    ConfigInvalid names the file, and the key that is unknown, missing or wrong.
    """
    settings = load_toml(path, CaptureSettings)
    if not (columns or exclude_columns or mask):
        return settings
    return msgspec.structs.replace(
        settings,
        columns=(*settings.columns, *columns),
        exclude_columns=(*settings.exclude_columns, *exclude_columns),
        mask=(*settings.mask, *mask),
    )
