"""gRPC channels to a server, and what its statuses stand for. Messages pass as bytes: who calls makes and reads them."""

from __future__ import annotations

from typing import Any, Final

import grpc

from headrace import errors
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


def open_channel(address: str) -> grpc.aio.Channel:
    """Return a channel to ``HOST:PORT``; it connects when first used. One connection a channel, shared with no other."""
    return grpc.aio.insecure_channel(
        address,
        options=(
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS_MIN),
            ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
        ),
    )


def error_of_status(error: grpc.aio.AioRpcError) -> errors.HeadraceError:
    """Return the error that a call's status stands for; ServerUnreachable where the server did not speak."""
    code = next((str(value) for key, value in error.trailing_metadata() or () if key == "headrace-code"), "")
    kind = errors.by_code(code) if code else errors.HeadraceError
    if kind is errors.HeadraceError:
        if error.code() is grpc.StatusCode.UNAVAILABLE or error.details() == _WRITE_FAILED:
            kind = errors.ServerUnreachable
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
