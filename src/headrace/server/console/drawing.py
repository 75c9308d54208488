"""Templates into pages: what every page has around it, and how numbers, sizes, times and names are written.

Everything that comes from outside is escaped by Jinja (autoescape); nothing here or in ``templates`` marks text as safe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from headrace import __version__
from headrace.access.grants import ANONYMOUS
from headrace.errors import StoreUnavailable
from headrace.log.retention.loss import duration
from headrace.runtime.runbook import runbook_codes
from headrace.server.console import chart
from headrace.server.console.sessions import Session
from headrace.server.guard import May
from headrace.server.http.table import Call
from headrace.server.service import Service
from headrace.wire.documents import TIME_MS_MAX, AlarmView, TimeToLoss, ms_of_rfc3339, rfc3339

PAGE_TYPE: Final = "text/html; charset=utf-8"
SESSION: Final = "headrace.console-session"
"""Key of the request's scope: the :class:`~headrace.server.console.sessions.Session` that asks."""
SOON_S: Final = 3600.0
"""A consumer that loses its place within the hour is shown as being in danger."""
UNKNOWN: Final = "\N{EN DASH}"

_FOLDER: Final = Path(__file__).parent / "templates"


class Place(NamedTuple):
    """A page that the navigation leads to, and who may see it."""

    path: str
    label: str
    may: May


PLACES: Final = (
    Place("/console", "Feeds", May.LIST),
    Place("/console/publishers", "Publishers", May.LIST),
    Place("/console/consumers", "Consumers", May.LIST),
    Place("/console/trace", "Trace", May.LIST),
    Place("/console/processes", "Processes", May.ADMINISTER),
    Place("/console/backup", "Backup", May.ADMINISTER),
    Place("/console/alarms", "Alarms", May.ADMINISTER),
)


async def page(service: Service, call: Call, template: str, *, status: int = 200, **values: Any) -> Response:
    """Return a page with the navigation around it: only what the caller may see is in it."""
    grant, path = call.grant, call.route.path
    session = session_of_scope(call.request)
    alarms: Sequence[AlarmView] | None = []
    if grant.may_administer():
        try:
            alarms = [one for one in (await service.alarms()).alarms if one.cleared_at is None]
        except StoreUnavailable:  # the page may be just what is needed now
            alarms = None
    shell = {
        "places": [one for one in PLACES if one.may is May.LIST or grant.may_administer()],
        "here_at": _place_of(path),
        "session": session,
        "who": "" if grant.subject == ANONYMOUS else grant.subject,
        "health": service.readiness(),
        "standing": alarms,
        "admin": grant.may_administer(),
    }
    return _response(template, status, {**shell, **values})


def bare_page(
    template: str, *, status: int = 200, headers: dict[str, str] | None = None, **values: Any
) -> Response:
    """Return a page without navigation: for who is not signed in, and where nothing can be asked."""
    return _response(template, status, values, headers)


def session_of_scope(request: Request) -> Session:
    """Return who asks; the face has put it there before any page is made."""
    session = request.scope[SESSION]
    if not isinstance(session, Session):
        raise TypeError("the face has found no session")
    return session


def feed_path(feed: str) -> str:
    """Return the address of a feed's page."""
    return f"/console/feeds/{part(feed)}"


def part(name: str) -> str:
    """Return a name as one part of an address."""
    return quote(name, safe="")


def runbook(code: str) -> str:
    """Return the address of the runbook's page for a code; empty if it has none."""
    return f"/console/runbook/{code}" if code in _explained() else ""


def number(value: float | None) -> str:
    """Return a whole number with its thousands apart."""
    return UNKNOWN if value is None or math.isnan(value) else f"{round(value):,}"


def size(value: float | None) -> str:
    """Return bytes in the largest unit that leaves a number above 1."""
    if value is None:
        return UNKNOWN
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def rate(value: float | None) -> str:
    """Return entries a second."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}/s" if value >= 10 or value == 0 else f"{value:.2g}/s"


def span(seconds: float | None) -> str:
    """Return a duration; what is below ten seconds with its tenth."""
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    return f"{seconds:.1f} s" if 0 < seconds < 10 else duration(max(0.0, seconds))


def ago(text: str | None) -> str:
    """Return how long an RFC 3339 time is past, in words."""
    try:
        past_s = datetime.now(UTC).timestamp() - ms_of_rfc3339(text or "") / 1000
    except ValueError:
        return UNKNOWN
    return "just now" if past_s < 2 else f"{duration(past_s)} ago"


def clock(at_ms: float) -> str:
    """Return the time of day, UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S}"


def danger(loss: TimeToLoss | None) -> str:
    """Return how a time to loss is to be shown: ``bad``, ``warn`` or ``ok``."""
    if loss is None:
        return "ok"
    if loss.state == "lost" or (loss.seconds is not None and loss.seconds <= 0):
        return "bad"
    return "warn" if loss.seconds is not None and loss.seconds < SOON_S else "ok"


def moment(seconds: float) -> str:
    """Return seconds since 1970 as RFC 3339; a process may report any number, and what is no such time is unknown."""
    ms = seconds * 1000
    return rfc3339(round(ms)) if 0 <= ms <= TIME_MS_MAX else UNKNOWN


@cache
def _explained() -> frozenset[str]:
    return frozenset(runbook_codes())


@cache
def environment() -> Environment:
    """Return the templates, compiled once."""
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        number=number,
        size=size,
        rate=rate,
        span=span,
        ago=ago,
        clock=clock,
        danger=danger,
        feed_path=feed_path,
        part=part,
        runbook=runbook,
        moment=moment,
    )
    made.globals.update(version=__version__, chart_size=chart, unknown=UNKNOWN)
    return made


def _place_of(path: str) -> str:
    """The entry of the navigation under which a page is found."""
    if path.endswith("/trace"):
        return "/console/trace"
    return "/console" if path.startswith("/console/feeds") else path


def _response(
    template: str, status: int, values: dict[str, Any], headers: dict[str, str] | None = None
) -> Response:
    text = environment().get_template(template).render(values)
    return Response(text, status, {"Content-Type": PAGE_TYPE, **(headers or {})})
