"""Generated requests against a real server: no answer is a 5xx, and every refusal is one that OpenAPI names."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.server.http.openapi import openapi_document
from headrace.server.http.routes import ROUTES
from headrace.wire.documents import EntryIn, PositionIn, RegisterListener, RegisterPublisher
from tests.scale import scaled, sized
from tests.servers import Feed, ServerProcess, code_of

EXAMPLES = scaled(sized(80, soak=150))
PATHS = openapi_document(ROUTES)["paths"]

_text = st.text(max_size=12)
_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _text
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_likely = st.sampled_from(
    [
        1,
        2,
        -1,
        0,
        1 << 63,
        "fuzz",
        "agent-1",
        "put",
        "\x00x",
        {},
        {"uuid": "\x00"},
        [],
        True,
        "1.2.3",
        "2026-11-21T00:00:00Z",
    ]
)


def _documents(*kinds: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with the members of ``kinds``, and sometimes another, of likely and unlikely values."""
    names = sorted({name for kind in kinds for name in kind.__struct_encode_fields__})
    return st.dictionaries(st.sampled_from(names) | _text, _likely | _values, max_size=6)


_entry = _documents(EntryIn).map(lambda entry: {"agent-id": "agent-1", "changes": {}, **entry})
_bodies = (
    st.binary(max_size=60)
    | _values.map(lambda value: json.dumps(value).encode())
    | _entry.map(lambda entry: json.dumps(entry).encode())
    | st.lists(_entry, max_size=3).map(lambda entries: json.dumps({"entries": entries}).encode())
    | _documents(PositionIn, RegisterListener, RegisterPublisher).map(
        lambda value: json.dumps(value).encode()
    )
)
_header_value = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20) | st.sampled_from(
    ["1", "0", "-1", "AAAA", "1.2.3"]
)
_headers = st.dictionaries(
    st.sampled_from(
        [
            "Headrace-Epoch",
            "Headrace-Incarnation",
            "Headrace-Lsn",
            "Headrace-Marked-At",
            "Headrace-Source-Position",
            "Accept",
            "Accept-Encoding",
            "Last-Event-ID",
        ]
    ),
    _header_value,
    max_size=3,
)
_query_names = st.sampled_from(
    [
        "after-sequence-id",
        "after-time",
        "beg-sequence-id",
        "changed",
        "end-sequence-id",
        "incarnation",
        "key",
        "limit",
        "limit-bytes",
        "listener-id",
        "producer",
        "shard",
    ]
)
_queries = st.dictionaries(
    _query_names | _text, _text | st.sampled_from(["1", "0", "listener-1", "-1", "1/2", "a,b"]), max_size=4
)
_names = st.sampled_from(["fuzz", "agent-1", "listener-1"]) | _text.filter(
    lambda text: text not in {".", ".."}
)


@settings(max_examples=EXAMPLES)
@given(
    st.sampled_from(sorted((path, method) for path, methods in PATHS.items() for method in methods)),
    _names,
    _queries,
    _headers,
    _bodies,
    st.sampled_from(["application/json", "application/x-ndjson", "text/plain"]),
)
def test_no_request_is_answered_by_what_is_not_documented(  # noqa: PLR0917  # one strategy each
    server: ServerProcess,
    place: tuple[str, str],
    name: str,
    query: dict[str, str],
    headers: dict[str, str],
    body: bytes,
    media_type: str,
) -> None:
    Feed(server, "fuzz").register()
    path, method = place
    parts = [quote(name, safe="") if part.startswith("{") else part for part in path.split("/")]
    if path.endswith("/poll"):
        query = {**query, "timeout-ms": "0"}
    has_body = method in {"post", "put"}
    with server.http.stream(
        method.upper(),
        "/".join(parts),
        params=query,
        headers={**headers, **({"Content-Type": media_type} if has_body else {})},
        content=body if has_body else None,
    ) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return  # it would never end
        answer.read()
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        code = code_of(answer)
        if code != "not-found":  # an empty name leads to no route
            documented = PATHS[path][method]["responses"][str(answer.status_code)]
            schema = documented["content"]["application/problem+json"]["schema"]
            assert code in schema["properties"]["code"]["enum"]
