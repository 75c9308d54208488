"""Checks of what is reached over a line: the server's HTTP and gRPC, the source databases, the archive."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import closing
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

import grpc
import httpx
from grpc_health.v1 import health_pb2

from headrace.cli.doctor.finding import Asked, Finding, fail, failed, ok, warn
from headrace.client.channel import error_of_status, open_channel
from headrace.client.credential import Credential
from headrace.client.http import FeedClient
from headrace.client.tls import context_for
from headrace.errors import HeadraceError, ServerUnreachable

ANSWER_S_MAX: Final = 5.0
"""So long a server is waited for."""


class Alive(NamedTuple):
    """What a server that answers says: its version, and how far its clock is ahead of ours (None: it does not say).

    ``date_ms`` has whole seconds; ``unsure_ms`` is how far off that can be, with the way there and back.
    """

    version: str
    date_ms: int | None
    ours_ms: int
    unsure_ms: int


def alive(asked: Asked) -> Alive | None:
    """Ask the server whether it lives; None if it does not answer, or is no Headrace."""
    try:
        context = context_for(asked.address, asked.authorities)
        began = time.monotonic()
        answer = httpx.get(
            f"{asked.address.rstrip('/')}/healthz", verify=context, timeout=ANSWER_S_MAX, trust_env=False
        )
        took_ms = int((time.monotonic() - began) * 1000)
        document: Any = answer.json()
        version = str(document["version"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError, HeadraceError):
        return None
    date_ms = _date_ms(answer.headers.get("date"))
    return Alive(version, date_ms, time.time_ns() // 1_000_000, 1_000 + took_ms)


def _date_ms(header: str | None) -> int | None:
    """A proxy may have written it: what is no date is none."""
    try:
        return int(parsedate_to_datetime(header).timestamp() * 1000) if header is not None else None
    except (ValueError, OverflowError):
        return None


def check_server(asked: Asked) -> list[Finding]:
    """The server answers, is ready, and takes the token."""
    try:
        return asyncio.run(_look_at_server(asked))
    except ServerUnreachable as error:
        if asked.is_server_named:
            raise
        return [
            warn(
                f"no server answers at {asked.address}, the default: {error.detail}", error.advice, error.code
            )
        ]


async def _look_at_server(asked: Asked) -> list[Finding]:
    credential = Credential.find(asked.token)
    async with FeedClient(
        asked.address, token=credential, timeout_s=ANSWER_S_MAX, ca_file=asked.authorities
    ) as client:
        health = await client.ready()
        found = [
            fail(f"the server is not ready: {one}", "/readyz says when it is.") for one in health.reasons
        ]
        if not found:
            found.append(ok(f"{asked.address} is ready"))
        try:
            feeds = await client.feeds()
        except ServerUnreachable:
            raise
        except HeadraceError as error:
            return [*found, failed(error, "the server lets nobody see its feeds with this token: ")]
    return [*found, ok(f"it shows {len(feeds)} feeds to {'this token' if credential else 'anybody'}")]


def check_grpc(asked: Asked) -> list[Finding]:
    """The server's gRPC answers that it serves."""
    return [] if asked.grpc is None else asyncio.run(_look_at_grpc(asked.grpc, asked))


async def _look_at_grpc(address: str, asked: Asked) -> list[Finding]:
    async with open_channel(address, asked.authorities) as channel:
        call = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            data = await call(b"", timeout=ANSWER_S_MAX)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise ServerUnreachable(f"{address}: no answer within {ANSWER_S_MAX:g} s") from None
            raise error_of_status(error) from None
    status = health_pb2.HealthCheckResponse.FromString(data).status
    if status == health_pb2.HealthCheckResponse.SERVING:
        return [ok(f"gRPC at {address} serves")]
    return [fail(f"gRPC at {address} does not serve", "/readyz of the server says why.")]


def check_source(asked: Asked) -> list[Finding]:
    """The agent's database can be reached by its role, has an outbox, and its triggers are as they were made."""
    from headrace.publisher.attaching import opened_source

    agent = asked.agent
    if agent is None:
        return []
    with opened_source(agent.find_dsn(os.environ)) as source:
        source.check_outbox()
        found = [
            warn(f"{one.table}: {one.detail}", f"headrace explain {one.kind}", one.kind)
            for table in source.check(agent.feeds)
            for one in table.findings
        ]
        alarms = [
            fail(f"{one.feed}: {one.alarm.detail}", one.alarm.hint, one.alarm.code)
            for one in source.standing(agent.feeds)
            if one.alarm is not None
        ]
    return [*alarms, *found] or [ok("the source database answers, and its outbox is there")]


def check_captured_source(asked: Asked) -> list[Finding]:
    """The MariaDB that is captured can be reached and is fit."""
    from headrace.capture.mariadb.connection import connect
    from headrace.capture.mariadb.fitness import Severity
    from headrace.capture.preflight import check_source as look
    from headrace.capture.settings import load_capture_settings

    if asked.capture_config is None:
        return []
    settings = load_capture_settings(asked.capture_config)
    with closing(connect(settings.find_dsn(os.environ))) as connection:
        said = look(connection, settings)
    found = [
        (fail if one.severity is Severity.ERROR else warn)(
            f"{one.subject}: {one.detail}", one.remedy, "source-unfit"
        )
        for one in said
    ]
    return found or [ok("the captured database answers, and is fit")]


def check_archive(asked: Asked) -> list[Finding]:
    """The archive can be listed."""
    from headrace.archive.files.folder import Folder

    if asked.wal_dir is None:
        return []
    folder = Folder(asked.wal_dir, str(asked.identity) if asked.identity is not None else "")
    files = folder.files()
    if files:
        return [ok(f"{folder.shown} can be listed: {len(files)} files, {sum(files.values()):,} bytes")]
    return [warn(f"{folder.shown} is empty", "A backup agent begins a new archive there.")]
