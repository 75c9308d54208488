"""The console's own files: style sheet, scripts, icon. Read once; no name from a request ever reaches the disk."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from starlette.responses import Response

from headrace.errors import RouteNotFound
from headrace.server.http.compression import encoded
from headrace.server.http.table import Call
from headrace.server.service import Service

TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What is served, by the end of its name."""

_FOLDER: Final = Path(__file__).parent / "static"


class _File(NamedTuple):
    content: bytes
    media_type: str
    tag: str


async def serve(service: Service, call: Call) -> Response:
    """Answer one file; a browser that has it already is told so. Another version of the server has other tags."""
    found = _files().get(call.path["name"])
    if found is None:
        raise RouteNotFound(f"there is no file {call.path['name'][:80]!r}")
    headers = {"Cache-Control": "no-cache", "ETag": found.tag}
    if call.request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return await encoded(call.request, Response(found.content, 200, headers, found.media_type))


@cache
def _files() -> dict[str, _File]:
    found = {}
    for path in _FOLDER.iterdir():
        content = path.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found[path.name] = _File(content, TYPES[path.suffix], tag)
    return found
