"""The OpenAPI 3.1 description, made from the route table and the documents' own schemas: nothing is written twice."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from headrace import __version__
from headrace.errors import (
    BodyTooSlow,
    Forbidden,
    HeadersTooLarge,
    HeadraceError,
    InvalidRequest,
    KeysUnavailable,
    ServerBusy,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UriTooLong,
)
from headrace.server.guard import ROLES, May
from headrace.server.http.bodies import JSON_TYPE, NDJSON_TYPE
from headrace.server.http.event_stream import EVENTS_TYPE
from headrace.server.http.problems import PROBLEM_TYPE, title_of
from headrace.server.http.table import Route
from headrace.wire.documents import FRAMES_TYPE, Problem

EVERYWHERE: Final[tuple[type[HeadraceError], ...]] = (
    InvalidRequest,
    UriTooLong,
    HeadersTooLarge,
    HeadraceError,
)
"""What any call can be answered."""
WITH_BODY: Final[tuple[type[HeadraceError], ...]] = (TooLarge, BodyTooSlow, ServerBusy)
"""What any call with a body can be answered."""

_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "JWT",
    "description": "Needed where the server was started with --auth-jwks; `x-headrace-roles` says with one of which roles.",
}
_EVENT: Final = {
    "type": "object",
    "description": "One of the events. `data` is JSON: the feed's bounds, an EntryOut, or a Problem, then the stream ends.",
    "properties": {
        "event": {"type": "string", "enum": ["feed", "change", "error"]},
        "data": {"type": "string"},
        "id": {
            "type": "string",
            "pattern": "^[0-9]+$",
            "description": "The reader's place: send it as Last-Event-ID.",
        },
        "retry": {"type": "integer"},
    },
}
_REF: Final = "#/components/schemas/{name}"
_DESCRIPTION: Final = (
    "Every answer that carries a place carries the incarnation; readers send back what they know. Refusals are problem "
    "documents (RFC 9457) whose `code` never changes; nothing was written when one is answered, unless its member "
    "`side-effects` is `possible`. Answers above 1 KB come compressed if `Accept-Encoding` names `zstd` or `gzip`."
)


def openapi_document(routes: Sequence[Route], *, authenticated: bool = True) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of ``routes``, ready for JSON. ``authenticated``: the server asks for tokens."""
    paths: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for route in routes:
        paths[route.path][route.method.lower()] = _operation(route, authenticated)
    kinds = {kind for route in routes for kind in (*route.bodies, route.answer) if kind is not None} | {
        Problem
    }
    _, schemas = msgspec.json.schema_components(
        sorted(kinds, key=lambda kind: kind.__name__), ref_template=_REF
    )
    for schema in schemas.values():
        schema["description"] = inspect.cleandoc(schema.get("description", ""))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace change feed API", "version": __version__, "description": _DESCRIPTION},
        "paths": dict(paths),
        "components": {"schemas": schemas, "securitySchemes": {"bearer": _BEARER}},
    }


def _operation(route: Route, authenticated: bool) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in route.path_parameters
    ]
    parameters += _parameters(route.query, "query") + _parameters(route.headers, "header")
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__.lstrip("_"),
        "summary": route.summary,
        "parameters": parameters,
        "responses": _responses(route),
    }
    if route.may is not May.OPEN:
        operation["security"] = [{"bearer": []}] if authenticated else [{}, {"bearer": []}]
        operation["x-headrace-roles"] = [str(role) for role in ROLES[route.may]]
    if route.bodies:
        content: dict[str, Any] = {JSON_TYPE: {"schema": _one_of(route.bodies)}}
        if route.ndjson:
            content[NDJSON_TYPE] = {"schema": {"type": "string", "description": "One EntryIn a line."}}
        operation["requestBody"] = {
            "required": True,
            "content": content,
            "description": f"At most {route.body_bytes_max} bytes.",
        }
    return operation


def _parameters(kind: type[msgspec.Struct] | None, place: str) -> list[dict[str, Any]]:
    """Describe a query or header document member by member."""
    if kind is None:
        return []
    _, schemas = msgspec.json.schema_components([kind], ref_template=_REF)
    document = schemas[kind.__name__]
    found = []
    for name, schema in document["properties"].items():
        described = {key: value for key, value in schema.items() if key != "description"}
        found.append(
            {
                "name": name.title() if place == "header" and name.startswith("headrace-") else name,
                "in": place,
                "required": name in document.get("required", ()),
                "description": schema.get("description", ""),
                "schema": described,
            }
        )
    return found


def _responses(route: Route) -> dict[str, Any]:
    free: dict[str, Any] = {"type": "object" if route.media_type == JSON_TYPE else "string"}
    if route.media_type == EVENTS_TYPE:
        free = _EVENT
    content: dict[str, Any] = {route.media_type: {"schema": _schema(route.answer) if route.answer else free}}
    done: dict[str, Any] = {"description": "Done.", "content": content}
    if route.frames:
        content[FRAMES_TYPE] = {"schema": {"type": "string", "format": "binary"}}
        done["headers"] = {
            name: {"description": "With stored frames only.", "schema": {"type": kind}}
            for name, kind in (
                ("Headrace-Incarnation", "string"),
                ("Headrace-Head-Sequence-Id", "integer"),
                ("Headrace-Oldest-Sequence-Id", "integer"),
            )
        }
    if route.status != 200:
        done = {"description": "Done; there is no body."}
        if route.status == 307:
            done["headers"] = {"Location": {"description": "Where it is.", "schema": {"type": "string"}}}
    responses = {str(route.status): done}
    access: tuple[type[HeadraceError], ...] = ()
    if route.may is not May.OPEN:
        access = (Unauthenticated, Forbidden, KeysUnavailable)
        access += () if route.from_memory else (StoreUnavailable,)
    by_status: defaultdict[int, list[type[HeadraceError]]] = defaultdict(list)
    sent = WITH_BODY if route.bodies else ()
    for kind in dict.fromkeys((*route.refusals, *access, *sent, *EVERYWHERE)):
        by_status[kind.http_status].append(kind)
    for status, kinds in sorted(by_status.items()):
        responses[str(status)] = _problem(kinds)
    if route.not_ready:
        responses["503"] = {"description": "Not ready; the reasons are named.", "content": content}
    return responses


def _problem(found: Iterable[type[HeadraceError]]) -> dict[str, Any]:
    kinds = sorted(found, key=lambda kind: kind.code)
    schema = {
        "allOf": [_schema(Problem)],
        "properties": {"code": {"enum": [kind.code for kind in kinds]}},
    }
    answer: dict[str, Any] = {
        "description": " ".join(f"`{kind.code}`: {title_of(kind)}." for kind in kinds),
        "content": {PROBLEM_TYPE: {"schema": schema}},
    }
    if any(issubclass(kind, Unavailable) for kind in kinds):
        answer["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return answer


def _schema(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}


def _one_of(kinds: Sequence[type[msgspec.Struct]]) -> dict[str, Any]:
    return _schema(kinds[0]) if len(kinds) == 1 else {"oneOf": [_schema(kind) for kind in kinds]}
