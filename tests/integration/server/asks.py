"""Every call of the API with what it needs to succeed, a client that notes refusals, and those that are described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import httpx

from headrace.server.http.openapi import openapi_document
from headrace.server.http.routes import ROUTES
from tests.reports import report
from tests.servers import Feed, ServerProcess, changes, code_of

FEED, AGENT, LISTENER = "f", "agent-1", "listener-1"
SNAPSHOT_URL = "http://127.0.0.1:9/snapshot"

CODE = "feed-owned"
"""A code that has a page in the runbook."""
OF_REPORT = {"{kind}": "agent", "{name}": AGENT}
OF_SCHEMA = {"{database}": "d", "{table}": "t", "{version}": "1"}

Refusal = tuple[str, int, str]
"""Call (``GET /feeds``), status, code."""


@dataclass(frozen=True)
class Ask:
    """A call with all that it needs to succeed at a healthy server."""

    call: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    feed: str = FEED
    listener: str = LISTENER
    agent: str = AGENT
    content: bytes | None = None
    code: str = CODE

    @property
    def path(self) -> str:
        """The address."""
        named = {
            "{change-feed-id}": self.feed,
            "{listener-id}": self.listener,
            "{agent-id}": self.agent,
            "{code}": self.code,
            **OF_SCHEMA,
            **OF_REPORT,
        }
        parts = self.call.partition(" ")[2].split("/")
        return "/".join(quote(named.get(part, part), safe="") for part in parts)


OF_FEED, OF_LISTENER = "/feeds/{change-feed-id}", "/listeners/{listener-id}/feeds/{change-feed-id}"
ASKS = {
    ask.call: ask
    for ask in (
        Ask("POST /publishers/register", body={"agent-id": AGENT, "change-feed-id": FEED}),
        Ask("POST /publishers/{agent-id}/release"),
        Ask(f"POST {OF_FEED}/entries", body={"agent-id": AGENT, "changes": changes(1)}),
        Ask(f"GET {OF_FEED}/entries", {"beg-sequence-id": "1"}),
        Ask(f"GET {OF_FEED}/tail", {"producer": AGENT}),
        Ask(f"GET {OF_FEED}/settings"),
        Ask(f"PUT {OF_FEED}/settings", body={"key-field": "id"}),
        Ask(f"GET {OF_FEED}/poll", {"listener-id": LISTENER, "timeout-ms": "0"}),
        Ask(f"GET {OF_FEED}/stream", {"listener-id": LISTENER}),
        Ask("POST /listeners/register", body={"listener-id": LISTENER, "change-feed-id": FEED}),
        Ask(f"PUT {OF_LISTENER}/position", body={"incarnation": "?", "sequence-id": 0}),
        Ask(f"POST {OF_LISTENER}/hydration", body={}),
        Ask(f"DELETE {OF_LISTENER}/hydration"),
        Ask(f"GET {OF_FEED}/snapshot", {"listener-id": LISTENER}),
        Ask(f"GET {OF_FEED}/trace", {"sequence-id": "1"}),
        Ask(f"GET {OF_FEED}/schemas"),
        Ask(f"GET {OF_FEED}/schemas/{'/'.join(OF_SCHEMA)}"),
        Ask("GET /feeds"),
        Ask(f"GET {OF_FEED}"),
        Ask("GET /retention"),
        Ask("POST /streams/rotate"),
        Ask("GET /alarms"),
        Ask("PUT /reports/{kind}/{name}", body=report(FEED)),
        Ask("GET /reports"),
        Ask("DELETE /reports/{kind}/{name}"),
        Ask("GET /healthz"),
        Ask("GET /readyz"),
        Ask("GET /metrics"),
        Ask("GET /runbook/{code}"),
        Ask("GET /openapi.json"),
    )
}
MET_ELSEWHERE = {("GET /feeds/{change-feed-id}/trace", 503, "server-busy")}
"""Refusals that need searches which are under way: tests/unit/server/tracing/test_scanning.py holds some there."""
APPEND = ASKS[f"POST {OF_FEED}/entries"]
POSITION = ASKS[f"PUT {OF_LISTENER}/position"]
SCHEMA = ASKS[f"GET {OF_FEED}/schemas/{'/'.join(OF_SCHEMA)}"]
READS = [ASKS[f"GET {OF_FEED}/{name}"] for name in ("entries", "poll", "stream")]


class World:
    """A client that notes every refusal it gets."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.met: set[Refusal] = set()

    def send(self, ask: Ask, **changed: Any) -> None:
        """Send ``ask`` with other members; of an event stream only the head is read."""
        ask = replace(ask, **changed)
        given: dict[str, Any] = {"json": ask.body} if ask.content is None else {"content": ask.content}
        headers = {"Content-Type": "application/json", **ask.headers} if ask.body is not None else ask.headers
        method = ask.call.partition(" ")[0]
        with self.http.stream(method, ask.path, params=ask.query, headers=headers, **given) as answer:
            if answer.headers.get("content-type", "").startswith("application/problem+json"):
                answer.read()
                self.met.add((ask.call, answer.status_code, code_of(answer)))

    def send_all(self) -> None:
        """Send every call; the incarnation is the right one if it can be asked for."""
        for ask in ASKS.values():
            self.send(
                ask,
                body={**(ask.body or {}), "incarnation": self.incarnation()} if ask is POSITION else ask.body,
            )

    def incarnation(self) -> str:
        """The feed's incarnation, as far as it can be had."""
        answer = self.http.get(f"/feeds/{FEED}")
        return str(answer.json().get("incarnation", "?"))


def documented() -> set[Refusal]:
    """Every refusal that is described."""
    found = set()
    for path, methods in openapi_document(ROUTES)["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                problem = answer.get("content", {}).get("application/problem+json")
                for code in problem["schema"]["properties"]["code"]["enum"] if problem else ():
                    found.add((f"{method.upper()} {path}", int(status), code))
    return found


def seed(server: ServerProcess, entries: int = 3) -> Feed:
    """Make what the calls are about."""
    feed = Feed(server, FEED)
    assert feed.register().status_code == 200
    assert feed.listener(LISTENER).status_code == 200
    for number in range(entries):
        assert feed.post({"changes": changes(number)}).status_code == 200
    return feed
