"""What every call has: its parsed request, its refusal as a status, and a place in the list of those under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from headrace.access.grants import Grant
from headrace.access.metadata import Denial, grant_of_call
from headrace.access.tokens import TokenVerifier
from headrace.errors import (
    Forbidden,
    HeadraceError,
    InvalidRequest,
    JournalCorrupt,
    MetadataCorrupt,
    Refused,
    SequenceLost,
    Unauthenticated,
    Unavailable,
    refusal_of,
)
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.server.guard import May, check_call
from headrace.server.traffic import Traffic

logger = get_logger("server.grpc")

M = TypeVar("M", bound=Message)

Handler = Callable[[Any, Any], Coroutine[Any, Any, Any]]
"""``handler(request, context)``: the request is bytes, or an iterator of them where the client streams."""

CODE_METADATA: Final = "headrace-code"
ABORT_S_MAX: Final = 1.0
"""How long the end of a call is waited for."""
SIDE_EFFECTS_METADATA: Final = "headrace-side-effects"
"""Trailing metadata of a call that ends with a status: the error's stable code, and what may be thought of an append."""


class Calls:
    """The calls of one service that are under way."""

    def __init__(self, traffic: Traffic) -> None:
        """``traffic`` counts the calls that end."""
        self._traffic = traffic
        self._under_way: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._under_way)

    async def wait_ended(self, seconds: float) -> None:
        """Wait until none is under way, but not longer than ``seconds``."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)

    def answering(self, method: str, handler: Handler) -> Handler:
        """Wrap the handler of ``method``: what it raises becomes a status, and it is known while it runs.

        Cancellation passes through.
        """

        @wraps(handler)
        async def answer(request: Any, context: Any) -> Any:
            task = asyncio.current_task()
            if task is not None:
                self._under_way.add(task)
            call = self._traffic.called(method)
            try:
                answer = await handler(request, context)
                call.ended(grpc.StatusCode.OK.name)
                return answer
            except grpc.aio.AbortError:
                raise
            except _ClientGone:
                raise asyncio.CancelledError from None
            except HeadraceError as error:
                call.refused(error, status_of(error).name)
                await abort(context, error)
            except Exception:
                logger.exception("a call failed")
                failure = HeadraceError("the server failed on this request; its log says why")
                call.refused(failure, status_of(failure).name)
                await abort(context, failure)
            finally:
                call.ended(grpc.StatusCode.CANCELLED.name)
                if task is not None:
                    self._under_way.discard(task)

        return answer


class Door:
    """Who calls: asked once by each handler, at its beginning."""

    def __init__(self, verifier: TokenVerifier | None, clock: Clock) -> None:
        """``verifier`` None: nobody is asked for a token."""
        self.clock = clock
        self._verifier = verifier

    async def grant_of(self, context: Any, may: May) -> Grant:
        """Return what the caller may do, which is good for ``may`` as far as that is about no feed.

        Raises Unauthenticated, Forbidden, KeysUnavailable.
        """
        found = await grant_of_call(context.invocation_metadata(), self._verifier)
        if isinstance(found, Denial):
            raise found.error
        check_call(found, may)
        return found


class _ClientGone(Exception):
    """There is nobody to write to any more."""


async def begin(context: Any) -> None:
    """Send the head of the call's answer, before its first message. Ends the call if the client is gone.

    gRPC would send it with that message, and again with the status if the message was given up while nobody read it. The
    second is refused, and the status with it: the client would wait for ever.
    """
    try:
        await context.send_initial_metadata(())
    except Exception as error:  # as in write
        raise _ClientGone from error


async def write(context: Any, data: bytes) -> None:
    """Send a message of the call's stream; waits while the client's window is full. Ends the call if the client is gone."""
    try:
        await context.write(data)
    except Exception as error:  # gRPC raises private types here, and only for a call that is over
        raise _ClientGone from error


async def abort(context: Any, error: HeadraceError) -> None:
    """End the call with the status of ``error``; it does not return."""
    status = status_of(error)
    if status not in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE}:
        logger.warning("a call was not served", code=error.code, detail=error.detail)
    trailing = ((CODE_METADATA, error.code), (SIDE_EFFECTS_METADATA, refusal_of(error).side_effects))
    try:
        async with asyncio.timeout(ABORT_S_MAX):
            await context.abort(status, error.detail, trailing)
    except TimeoutError:  # a message that nobody reads is before it; the client gets both if it ever does
        raise asyncio.CancelledError from None


def status_of(error: HeadraceError) -> grpc.StatusCode:
    """Return the status that an error is answered with where the answer itself can't say it."""
    if isinstance(error, Unavailable):
        return grpc.StatusCode.UNAVAILABLE
    if isinstance(error, Unauthenticated):
        return grpc.StatusCode.UNAUTHENTICATED
    if isinstance(error, Forbidden):
        return grpc.StatusCode.PERMISSION_DENIED
    if isinstance(error, (JournalCorrupt, MetadataCorrupt, SequenceLost)):
        return grpc.StatusCode.DATA_LOSS
    if isinstance(error, Refused):
        return grpc.StatusCode.INVALID_ARGUMENT
    return grpc.StatusCode.INTERNAL


def parse(kind: type[M], data: bytes) -> M:
    """Return the request as a message; InvalidRequest if it is none."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise InvalidRequest(f"the request is no {kind.DESCRIPTOR.full_name}") from None
