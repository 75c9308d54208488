"""Options of ``headrace serve`` that belong together: who is let in, what is kept for how long, how streams are paced."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from headrace.access.opening import AuthSettings, auth_settings
from headrace.access.tls import TlsSettings, tls_settings
from headrace.cli.retention_settings import parse_positive_duration, parse_retention, parse_segment_size
from headrace.log.retention.plan import RetentionSettings
from headrace.server.snapshots import Origin, parse_origins
from headrace.server.streams.terms import StreamTerms
from headrace.wire.batch import BATCH_ENTRIES_MAX
from headrace.wire.compression import CompressionTerms


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AccessOptions:
    """Who is let in, and where listeners may be sent.

    Parameters
    ----------
    auth_jwks
        Take bearer tokens, and check them with the key set at this address: https://…, or file:///…. Without it nobody is
        asked for a token, and only this machine is served.
    auth_issuer
        Who must have issued a token (its iss).
    auth_audience
        Whom a token must be for (its aud).
    insecure
        Without --auth-jwks: allow an address that other machines can reach. Nobody is asked who they are.
    tls_cert
        Speak TLS, with the certificate in this file (PEM), on all addresses. It is read again when it changes.
    tls_key
        The certificate's key (PEM, without a passphrase).
    tls_client_ca
        Serve only clients with a certificate of one of the authorities in this file.
    snapshot_allow
        Origin that listeners may be sent to for a publisher's snapshot, such as https://db1.example:8480; give it once for
        each. Default: a server that listens on this machine alone sends to this machine, any other nowhere.
    """

    auth_jwks: str | None = None
    auth_issuer: str | None = None
    auth_audience: str | None = None
    insecure: Annotated[bool, Parameter(negative=())] = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    snapshot_allow: Annotated[tuple[str, ...], Parameter(negative=())] = ()

    def auth(self) -> AuthSettings | None:
        """Return whose tokens are taken; None: nobody is asked. Usage."""
        return auth_settings(self.auth_jwks, self.auth_issuer, self.auth_audience, insecure=self.insecure)

    def tls(self) -> TlsSettings | None:
        """Return the files of TLS; None: plain text. ConfigInvalid."""
        return tls_settings(self.tls_cert, self.tls_key, self.tls_client_ca)

    def origins(self) -> tuple[Origin, ...]:
        """Return where listeners may be sent; Usage."""
        return parse_origins(self.snapshot_allow)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RetentionOptions:
    """What is kept for how long.

    Parameters
    ----------
    retention
        How long entries are kept at least, such as 60m, 48h or 7d. Whole journal segments are dropped.
    retention_bytes_max
        What the journal may take, such as 20g; then the oldest segments go, whoever holds them. Default: 20g, or a quarter
        of the volume if that is less.
    subscriber_expiry
        Who was not seen for so long holds nothing back.
    retention_every
        The pause between two looks at what can be dropped.
    hydration_lease
        How long retention waits for a listener that takes a snapshot and is silent; 6h at most.
    """

    retention: str = "48h"
    retention_bytes_max: str | None = None
    subscriber_expiry: str = "24h"
    retention_every: str = "60s"
    hydration_lease: str = "6h"

    def settings(self) -> RetentionSettings:
        """Return the settings that the options mean; ConfigInvalid naming the option that is wrong."""
        return parse_retention(
            self.retention,
            self.retention_bytes_max,
            self.subscriber_expiry,
            self.retention_every,
            self.hydration_lease,
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """How the streams of gRPC are paced; the defaults are RFC-010's numbers.

    Parameters
    ----------
    stream_heartbeat
        A stream that has nothing to send says so after this long.
    stream_batch
        Most entries of a batch, up to 1000.
    stream_gather
        While a message is on its way, new entries are gathered for so long.
    stream_queue
        How many entries may wait for one subscriber.
    stream_queue_bytes
        How many bytes of them.
    backpressure_timeout
        A subscriber that takes nothing for so long while its queue is full loses its stream.
    snappy_above
        Batches above this size are compressed with Snappy, for who asks for it.
    zstd_above
        Batches above this size are compressed with Zstandard, for who asks for it.
    """

    stream_heartbeat: str = "5s"
    stream_batch: Annotated[int, Parameter(validator=Number(gte=1, lte=BATCH_ENTRIES_MAX))] = (
        BATCH_ENTRIES_MAX
    )
    stream_gather: str = "10ms"
    stream_queue: Annotated[int, Parameter(validator=Number(gte=1))] = 10_000
    stream_queue_bytes: str = "2m"
    backpressure_timeout: str = "30s"
    snappy_above: str = "4k"
    zstd_above: str = "64k"

    def terms(self) -> StreamTerms:
        """Return the terms that the options mean; ConfigInvalid naming the option that is wrong."""
        return StreamTerms(
            heartbeat_s=parse_positive_duration(self.stream_heartbeat, "--stream-heartbeat"),
            batch_entries=self.stream_batch,
            gather_s=parse_positive_duration(self.stream_gather, "--stream-gather"),
            queue_entries=self.stream_queue,
            queue_bytes=parse_segment_size(self.stream_queue_bytes, "--stream-queue-bytes"),
            backpressure_timeout_s=parse_positive_duration(
                self.backpressure_timeout, "--backpressure-timeout"
            ),
            compression=CompressionTerms(
                snappy_above=parse_segment_size(self.snappy_above, "--snappy-above"),
                zstd_above=parse_segment_size(self.zstd_above, "--zstd-above"),
            ),
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PgOptions:
    """PostgreSQL's replication protocol.

    Parameters
    ----------
    pg
        Address of PostgreSQL's replication protocol, such as 127.0.0.1:8473. Default: it is not spoken.
    pg_sender_timeout
        A stream of it ends whose client says nothing for so long (PostgreSQL's wal_sender_timeout).
    """

    pg: str | None = None
    pg_sender_timeout: str = "60s"

    def address(self) -> str | None:
        """Return the address; None: it is not spoken."""
        return None if self.pg == "off" else self.pg

    def sender_timeout_s(self) -> float:
        """Return the time-out in seconds; ConfigInvalid naming the option."""
        return parse_positive_duration(self.pg_sender_timeout, "--pg-sender-timeout")
