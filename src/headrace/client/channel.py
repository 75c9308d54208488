"""gRPC channels to a server, and what its statuses stand for. Messages pass as bytes: who calls makes and reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc

from headrace import errors
from headrace.client.credential import Credential, check_may_send
from headrace.client.tls import channel_credentials
from headrace.wire.generated import log_pb2

MESSAGE_BYTES_MAX: Final = 64 << 20
"""Largest message that is taken or sent; the server's own limits are lower."""
KEEPALIVE_MS: Final = 20_000
KEEPALIVE_TIMEOUT_MS: Final = 10_000
"""A silent connection is asked whether it lives, so that a dead server is noticed."""
RECONNECT_MS_MIN: Final = 100
RECONNECT_MS_MAX: Final = 5_000
"""Pauses between attempts to connect, growing: a server that is back is found within the longest (gRPC's own is 2 min)."""
_WRITE_FAILED: Final = "Internal error from Core"
"""What grpcio makes of a write into a call that has just ended, in place of the status that ended it (grpc/grpc#36066)."""


_FOREIGN: Final = "http2 header with status"
"""What gRPC says of an answer that no gRPC server gave: a proxy's 404, 429 or 403, with the status behind it."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS_MIN),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
_TLS: Final = "https://"


def open_channel(address: str, ca_file: Path | None = None) -> grpc.aio.Channel:
    """Return a channel to ``HOST:PORT``, with TLS to ``https://HOST:PORT``; it connects when first used.

    One connection a channel, shared with no other. ``ca_file``: the authorities to trust, else those of the environment.
    ConfigInvalid if the TLS files of ``client.tls`` can't be used.
    """
    if not address.startswith(_TLS):
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    place = address.removeprefix(_TLS).rstrip("/")
    return grpc.aio.secure_channel(place, channel_credentials(ca_file), options=_OPTIONS)


class Caller:
    """A channel, and what each call over it carries."""

    def __init__(
        self,
        address: str,
        *,
        token: str | Credential | None = None,
        insecure: bool = False,
        metadata: tuple[tuple[str, str], ...] = (),
        ca_file: Path | None = None,
    ) -> None:
        """Speak to ``address`` as :func:`open_channel` does.

        ``token`` is sent with each call; a Credential's file may change. Raises TokenExposed where it would go in clear to
        another machine, unless ``insecure``; ConfigInvalid if the TLS files can't be used.
        """
        self._credential = Credential(token) if isinstance(token, str) and token else token or None
        self._fixed = metadata
        if self._credential is not None:
            url = address if address.startswith(_TLS) else f"http://{address}"
            check_may_send(url, insecure=insecure)
        self._open = partial(open_channel, address, ca_file)
        self.channel = self._open()

    def renew(self) -> grpc.aio.Channel:
        """Have a new channel from now on, and return the old one, to be closed: its calls end as :meth:`outliving` says."""
        old, self.channel = self.channel, self._open()
        return old

    @contextmanager
    def outliving(self, channel: grpc.aio.Channel | None = None) -> Iterator[None]:
        """Raise ServerUnreachable for a call in the body whose channel :meth:`renew` has given up.

        ``channel``: over which it was begun, None: that of now.
        """
        channel = channel or self.channel
        try:
            yield
        except (grpc.aio.UsageError, asyncio.CancelledError):
            task = asyncio.current_task()
            if self.channel is channel or task is None or task.cancelling():
                raise
            raise errors.ServerUnreachable("the connection was given up for a new one") from None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of the next call, with the token as it is now."""
        return self._fixed if self._credential is None else (*self._fixed, *self._credential.metadata())


def error_of_status(error: grpc.aio.AioRpcError) -> errors.HeadraceError:
    """Return the error that a call's status stands for; ServerUnreachable where the server did not speak."""
    code = next((str(value) for key, value in error.trailing_metadata() or () if key == "headrace-code"), "")
    kind = errors.by_code(code) if code else errors.HeadraceError
    if kind is errors.HeadraceError:
        foreign = error.details() == _WRITE_FAILED or _FOREIGN in (error.details() or "")
        if foreign or error.code() is grpc.StatusCode.UNAVAILABLE:
            kind = errors.ServerUnreachable
        elif error.code() is grpc.StatusCode.UNAUTHENTICATED:
            kind = errors.Unauthenticated
        elif error.code() is grpc.StatusCode.PERMISSION_DENIED:
            kind = errors.Forbidden
        elif error.code() is grpc.StatusCode.DATA_LOSS:
            kind = errors.JournalCorrupt
        elif error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            kind = errors.InvalidRequest
        elif error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            kind = errors.TooLarge
    found = kind(f"{error.code().name}: {error.details()}")
    said: Any = next(
        (value for key, value in error.trailing_metadata() or () if key == "headrace-side-effects"), None
    )
    if said is not None:
        found.members["side-effects"] = str(said)
    return found


def error_of_refusal(refusal: log_pb2.Refusal) -> errors.HeadraceError:
    """Return the error that a refused append stands for, with the members that HTTP's problem document has."""
    error = errors.by_code(refusal.code)(refusal.detail, hint=refusal.hint)
    error.members = {
        "index": refusal.index if refusal.HasField("index") else None,
        "expected": refusal.expected if refusal.HasField("expected") else None,
        "actual-next": refusal.actual_next if refusal.HasField("actual_next") else None,
        "retryable": refusal.retryable,
        "side-effects": "none" if refusal.side_effects == log_pb2.NONE else "possible",
    }
    error.members = {name: value for name, value in error.members.items() if value is not None}
    return error
