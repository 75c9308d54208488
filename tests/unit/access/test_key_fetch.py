"""Which addresses of key sets are taken, and what becomes of files that are none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.access.key_fetch import (
    DOCUMENT_BYTES_MAX,
    FetchFailed,
    FileKeyFetch,
    HttpKeyFetch,
    key_fetch_of,
)
from headrace.errors import Usage


@pytest.mark.parametrize(
    "url",
    [
        "https://id.example/jwks",
        "https://id.example:8443/a?b=c",
        "http://127.0.0.1:80/x",
        "http://localhost/x",
        "http://[::1]:9/x",
        "HTTPS://id.example/jwks",
    ],
)
async def test_addresses_over_http(url: str) -> None:
    fetch = key_fetch_of(url)
    assert isinstance(fetch, HttpKeyFetch)
    await fetch.close()


async def test_plain_http_elsewhere_needs_insecure() -> None:
    for url in ("http://id.example/jwks", "http://10.0.0.1/jwks", "http://localhost.example/jwks"):
        with pytest.raises(Usage, match="plain http"):
            key_fetch_of(url)
        await key_fetch_of(url, insecure=True).close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "jwks.json",
        "/tmp/jwks.json",
        "file://other/tmp/x",
        "file:x",
        "ftp://a/b",
        "https://",
        "https:///x",
        "http://[::1",
        "https://user:secret@id.example/",
        "https://a\x01b/",
        "data:,x",
        "https://a:x/",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(Usage) as refused:
        key_fetch_of(url)
    assert "secret" not in refused.value.detail


async def test_file_with_escaped_name(tmp_path: Path) -> None:
    file = tmp_path / "my keys.json"
    file.write_bytes(b"{}")
    fetch = key_fetch_of(file.as_uri())
    assert isinstance(fetch, FileKeyFetch)
    assert await fetch.fetch() == b"{}"


async def test_files_that_are_no_key_sets(tmp_path: Path) -> None:
    huge, pipe = tmp_path / "huge", tmp_path / "pipe"
    huge.write_bytes(b"x" * (DOCUMENT_BYTES_MAX + 1))
    os.mkfifo(pipe)
    for path in (huge, pipe, tmp_path, tmp_path / "none"):
        with pytest.raises(FetchFailed):
            await FileKeyFetch(path).fetch()
