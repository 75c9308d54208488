"""The route table: matching of undecoded addresses, and an OpenAPI document that says the same as the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from headrace.errors import InvalidRequest, MethodNotAllowed, RouteNotFound, by_code
from headrace.server.http.openapi import openapi_document
from headrace.server.http.routes import ROUTES
from headrace.server.http.table import find_route

DOCUMENT = json.loads(msgspec.json.encode(openapi_document(ROUTES)))
OPERATIONS = [
    (path, method, op) for path, methods in DOCUMENT["paths"].items() for method, op in methods.items()
]


@pytest.mark.parametrize(
    ("method", "path", "parameters"),
    [
        ("GET", b"/feeds", {}),
        ("GET", b"/feeds/vmapi%3A%3Avm", {"change-feed-id": "vmapi::vm"}),
        ("GET", b"/feeds/vmapi::vm/poll", {"change-feed-id": "vmapi::vm"}),
        ("POST", b"/publishers/a%2Fb/release", {"agent-id": "a/b"}),
        ("PUT", b"/listeners/l%20/feeds/f/position", {"listener-id": "l ", "change-feed-id": "f"}),
    ],
)
def test_address_is_matched_part_by_part(method: str, path: bytes, parameters: dict[str, str]) -> None:
    route, found = find_route(ROUTES, method, path)
    assert (route.method, found) == (method, parameters)


@pytest.mark.parametrize(
    "path", [b"/", b"", b"/feeds/", b"/feeds//entries", b"/feeds/f/entries/", b"/Feeds", b"//feeds"]
)
def test_other_addresses_are_not_found(path: bytes) -> None:
    with pytest.raises(RouteNotFound):
        find_route(ROUTES, "GET", path)


def test_method_not_allowed_names_the_methods_there_are() -> None:
    with pytest.raises(MethodNotAllowed) as caught:
        find_route(ROUTES, "PUT", b"/feeds/f/entries")
    assert caught.value.members == {"allowed": ["GET", "POST"]}


def test_address_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        find_route(ROUTES, "GET", b"/feeds/%ff")


def test_addresses_and_operation_ids_are_unique() -> None:
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES) == len(OPERATIONS)
    assert len({op["operationId"] for _, _, op in OPERATIONS}) == len(OPERATIONS)


def test_openapi_names_every_path_parameter() -> None:
    for path, _, op in OPERATIONS:
        named = [given["name"] for given in op["parameters"] if given["in"] == "path"]
        assert path.count("{") == len(named)
        assert all(f"{{{name}}}" in path for name in named)


def test_openapi_references_lead_somewhere() -> None:
    references = set(_references(DOCUMENT))
    assert references
    for reference in references:
        at: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            at = at[part]
        assert at["type"] == "object"


def test_openapi_answers_have_descriptions_and_known_codes() -> None:
    for _, _, op in OPERATIONS:
        assert op["summary"]
        assert {"400", "500"} <= set(op["responses"])
        assert len({"200", "204", "307"} & set(op["responses"])) == 1
        for status, answer in op["responses"].items():
            assert answer["description"]
            schema = answer.get("content", {}).get("application/problem+json", {}).get("schema")
            for code in schema["properties"]["code"]["enum"] if schema else []:
                assert str(by_code(code).http_status) == status, code


def test_openapi_describes_every_parameter() -> None:
    given = [one for _, _, op in OPERATIONS for one in op["parameters"] if one["in"] != "path"]
    assert given
    assert all(one["description"] and one["schema"] for one in given)
    names = {one["name"] for one in given}
    assert {"limit", "timeout-ms", "Headrace-Lsn", "Headrace-Incarnation", "Headrace-Epoch"} <= names


def test_openapi_refuses_unknown_members_of_requests() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["EntryIn"]["additionalProperties"] is False
    assert schemas["EntryIn"]["properties"]["changes"]["type"] == "object"
    assert schemas["EntryIn"]["required"] == ["changes"]


def _references(at: Any) -> Iterator[str]:
    if isinstance(at, dict):
        if "$ref" in at:
            yield at["$ref"]
        for inner in at.values():
            yield from _references(inner)
    elif isinstance(at, list):
        for inner in at:
            yield from _references(inner)
