"""Whoever answers with a problem document also serves the page that its ``type`` points to, to anybody."""

from __future__ import annotations

from pathlib import Path

import httpx

from headrace.runtime.health import HealthServer, parse_health
from headrace.runtime.progress import Progress
from headrace.runtime.runbook import PAGE_TYPE, runbook_codes, runbook_page
from tests.identity import Issuer
from tests.secured import secured
from tests.servers import code_of, serving


def test_a_refusal_leads_to_its_page(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        refused = server.http.get("/feeds/none")
        assert code_of(refused) == "feed-not-found"
        page = server.http.get(str(refused.url.join(refused.json()["type"])))
        assert (page.status_code, page.headers["content-type"]) == (200, PAGE_TYPE)
        assert page.text == runbook_page("feed-not-found")
        for code in runbook_codes():
            assert server.http.get(f"/runbook/{code}").text == runbook_page(code)
        for name in ("none", "..%2FREADME", "README"):
            assert code_of(server.http.get(f"/runbook/{name}")) == "not-found"


def test_who_has_no_token_reads_what_that_means(tmp_path: Path) -> None:
    with secured(tmp_path, Issuer()) as server, server.client(None) as stranger:
        refused = stranger.get("/feeds")
        assert code_of(refused) == "unauthenticated"
        assert stranger.get(refused.json()["type"]).text == runbook_page("unauthenticated")


def test_an_agents_health_address_serves_pages() -> None:
    with HealthServer(parse_health("127.0.0.1:0"), Progress()) as server:
        page = httpx.get(f"http://{server.address}/runbook/stalled", trust_env=False)
        assert (page.text, page.headers["content-type"]) == (runbook_page("stalled"), PAGE_TYPE)
        assert httpx.get(f"http://{server.address}/runbook/none", trust_env=False).status_code == 404
