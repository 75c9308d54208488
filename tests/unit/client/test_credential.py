"""The client's token: where it is from, that a new one needs no restart, and that no other origin ever sees it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from headrace.client.credential import TOKEN_BYTES_MAX, Credential, check_may_send, read_token
from headrace.client.http import FeedClient
from headrace.errors import ConfigInvalid, HeadraceError, TokenExposed, Usage
from tests.unit.client.servers import Answers, answering


def _authorizations(answers: Answers) -> list[str | None]:
    return [headers.get("authorization") for _, headers, _ in answers.requests]


def test_token_is_from_the_file_else_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_TOKEN", raising=False)
    assert Credential.find(None) is None
    assert read_token(None) is None
    monkeypatch.setenv("HEADRACE_TOKEN", " from-environment\n")
    assert read_token(None) == "from-environment"
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert read_token(file) == "from-file"


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"a b", b"a\nb", b"a\r\nX-Evil: 1", b"\xff\xfe", b"x" * 9000]
)
def test_what_is_no_token_is_refused_and_not_shown(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ConfigInvalid) as refused:
        read_token(file)
    assert str(TOKEN_BYTES_MAX) in refused.value.detail
    assert "Evil" not in refused.value.detail
    monkeypatch.setenv("HEADRACE_TOKEN", "a b")
    with pytest.raises(ConfigInvalid):
        read_token(None)


def test_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="can't be read"):
        Credential.find(tmp_path / "none")


def test_token_is_never_printed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("very-secret")
    assert "very-secret" not in f"{Credential.of_file(file)!r} {Credential.of_file(file)}"
    assert "very-secret" not in repr(Credential("very-secret"))


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    file, new = tmp_path / "token", tmp_path / "new"
    file.write_text("one")
    credential = Credential.of_file(file)
    assert credential.token() == "one"
    new.write_text("two")
    new.replace(file)
    assert credential.token() == "two"
    assert credential.metadata() == (("authorization", "Bearer two"),)
    file.write_text("")
    assert credential.token() == "two", "a file that is being written changes nothing"
    file.unlink()
    assert credential.token() == "two"
    file.write_text("three")
    assert credential.token() == "three"


@pytest.mark.parametrize(
    "server",
    ["https://example.com", "http://127.0.0.1:8470", "http://localhost", "http://[::1]:1", "HTTPS://a"],
)
def test_places_where_a_token_may_go(server: str) -> None:
    check_may_send(server)


@pytest.mark.parametrize(
    "server", ["http://example.com", "http://10.0.0.1:8470", "http://127.0.0.1.example.com"]
)
async def test_token_does_not_go_over_the_network_in_clear(server: str) -> None:
    with pytest.raises(TokenExposed):
        check_may_send(server)
    with pytest.raises(TokenExposed):
        FeedClient(server, token="t")
    check_may_send(server, insecure=True)
    await FeedClient(server, token="t", insecure=True).close()
    await FeedClient(server).close()


@pytest.mark.parametrize("server", ["", "example.com", "ftp://a", "http://", "http://a:x"])
def test_what_is_no_server(server: str) -> None:
    with pytest.raises(Usage):
        check_may_send(server)


async def test_client_sends_the_newest_token_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    async with answering() as server, FeedClient(server.url, token=Credential.of_file(file)) as client:
        for token in ("one", "two"):
            file.write_text(token)
            with pytest.raises(HeadraceError):  # {} is no answer of ours
                await client.retention()
        assert _authorizations(server) == ["Bearer one", "Bearer two"]


async def test_no_other_origin_gets_the_token_not_even_by_a_redirect() -> None:
    async with answering() as api, answering() as elsewhere:
        hook = Credential("secret").request_hook(api.url)
        async with httpx.AsyncClient(
            event_hooks={"request": [hook]}, follow_redirects=True, trust_env=False
        ) as http:
            await http.get(f"{api.url}/a")
            await http.get(f"{elsewhere.url}/a")
            await http.get(f"{elsewhere.url}/a", headers={"Authorization": "Bearer secret"})
            api.status, api.headers = 307, {"Location": f"{elsewhere.url}/snapshot"}
            await http.get(f"{api.url}/b")
        assert _authorizations(api) == ["Bearer secret", "Bearer secret"]
        assert _authorizations(elsewhere) == [None, None, None]


async def test_another_port_name_or_scheme_is_another_origin() -> None:
    hook = Credential("secret").request_hook("http://127.0.0.1:8470/")
    for url, sent in (
        ("http://127.0.0.1:8470/feeds", True),
        ("HTTP://127.0.0.1:8470/feeds", True),
        ("http://127.0.0.1:8471/feeds", False),
        ("http://127.0.0.1/feeds", False),
        ("http://localhost:8470/feeds", False),
        ("https://127.0.0.1:8470/feeds", False),
        ("http://127.0.0.1:8470@example.com/feeds", False),
    ):
        request = httpx.Request("GET", url, headers={"Authorization": "Bearer of-somebody-else"})
        await hook(request)
        assert request.headers.get("authorization") == ("Bearer secret" if sent else None), url
    hook = Credential("secret").request_hook("https://Example.com:443")
    request = httpx.Request("GET", "https://example.com/feeds")
    await hook(request)
    assert request.headers["authorization"] == "Bearer secret"
