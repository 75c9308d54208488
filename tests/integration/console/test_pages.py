"""The console in a real browser against a running server: pages render, the tail moves, release works, nothing is amiss."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import partial
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect

from headrace.runtime.facts import BACKUP_LAG, BACKUP_WINDOW_BEGIN, BACKUP_WINDOW_END
from tests.integration.console.browser import chromium, tab
from tests.integration.console.shop import Shop
from tests.reports import report
from tests.scale import chosen
from tests.servers import Feed, serving
from tests.waiting import wait_until

ORDERS = "/console/feeds/shop%3A%3Aorders"
PAGES = {
    "/console": "Feeds",
    ORDERS: "shop::orders",
    f"{ORDERS}?key=order-1": "shop::orders",
    "/console/publishers": "Publishers",
    "/console/consumers": "Listeners and subscribers",
    "/console/trace": "Trace an entry",
    f"{ORDERS}/trace?sequence-id=3": "Entry 3",
    "/console/processes": "Processes",
    "/console/backup": "Backup",
    "/console/alarms": "Alarms",
}
SCHEMES: Final[tuple[Literal["light"], Literal["dark"]]] = ("light", "dark")
WIDE: Final[ViewportSize] = {"width": 1280, "height": 720}
NARROW: Final[ViewportSize] = {"width": 360, "height": 700}
MARKUP_NAME = "<img/src=x/onerror=alert(1)>\"'&"
MARKUP = "<img src=x onerror=alert(1)>\"'&"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop on a server that asks for no tokens."""
    with serving(tmp_path_factory.mktemp("console"), grpc=True) as server:
        made = Shop(server)
        made.open()
        made.subscribe("archive-1", 30)
        made.report()
        yield made
    assert "Traceback" not in server.errors()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests here; each opens a profile of its own."""
    with chromium() as running:
        yield running


def shows(table: Locator, head: int) -> bool:
    return first_id(table) == head


def first_id(table: Locator) -> int:
    return int(table.locator("tbody tr:not(.gap) th").first.inner_text())


def test_every_page_renders_with_landmarks_and_names(shop: Shop, browser: Browser) -> None:
    """Light and dark; and a narrow window scrolls nothing but tables. A short run looks at some of them, by its seed."""
    with tab(browser, shop.server.url, color_scheme="light", viewport=WIDE) as shown:
        page = shown.page
        schemes: Iterator[Literal["light", "dark"]] = itertools.cycle(SCHEMES)
        for path, heading in chosen(PAGES.items(), 4):
            first = next(schemes)
            page.emulate_media(color_scheme=first)
            shown.go(path)
            expect(page.get_by_role("heading", level=1)).to_have_text(heading)
            expect(page.get_by_role("main")).to_be_visible()
            expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(7)
            assert (
                page.locator(
                    "table:not(:has(caption)), input:not([type=hidden]):not([id]), svg[role=img]:not([aria-labelledby])"
                ).count()
                == 0
            )
            ids = page.eval_on_selector_all("[id]", "all => all.map(one => one.id)")
            assert len(ids) == len(set(ids)), path
            assert is_light(page) == (first == "light"), path
            other = next(schemes)
            page.emulate_media(color_scheme=other)
            assert is_light(page) == (other == "light"), path
            next(schemes)  # the next page is opened in the other one
            page.set_viewport_size(NARROW)
            assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"], path
            page.set_viewport_size(WIDE)


def is_light(page: Page) -> bool:
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return float(sum(map(int, re.findall(r"\d+", ground)[:3]))) / 3 > 200


def test_the_first_page_shows_head_rate_and_lag(shop: Shop, browser: Browser) -> None:
    shop.sell("vmapi::vm", 1)
    head = shop.head("vmapi::vm")
    with tab(browser, shop.server.url) as shown:
        shown.go("/console")
        row = shown.page.get_by_role("row", name=re.compile("vmapi::vm"))
        expect(row).to_contain_text(f"{head}")
        expect(row).to_contain_text(re.compile(r"[0-9]/s"))  # by itself, once it is known
        shown.page.get_by_label("Search feeds by name").fill("SHOP")
        shown.page.keyboard.press("Enter")
        expect(shown.page.get_by_role("rowheader")).to_have_count(2)


def test_the_tail_moves_when_entries_are_appended(shop: Shop, browser: Browser) -> None:
    with tab(browser, shop.server.url) as shown:
        shown.go(ORDERS)
        table = shown.page.get_by_role("table", name="Entries of shop::orders")
        expect(shown.page.get_by_text("live", exact=True)).to_be_visible()
        assert first_id(table) == shop.head("shop::orders")
        for _ in range(3):
            shop.sell("shop::orders", 2)
            head = shop.head("shop::orders")
            wait_until(partial(shows, table, head), what="the tail to show the head")
        ids = [int(one) for one in table.locator("tbody th").all_inner_texts()]
        assert ids == list(range(ids[0], ids[-1] - 1, -1)), "each entry once, the newest first"
        expect(shown.page.get_by_role("status").filter(has_text="new entries")).to_be_attached()

        shown.page.get_by_role("button", name="Pause").click()
        expect(shown.page.locator("#tail-state")).to_have_text("paused")
        shop.sell("shop::orders", 1)
        shown.page.get_by_role("button", name="Paused").click()
        wait_until(lambda: first_id(table) == head + 1, what="the tail to go on")


def test_a_feed_that_is_too_fast_for_eyes_shows_its_newest_and_says_so(shop: Shop, browser: Browser) -> None:
    with tab(browser, shop.server.url) as shown:
        shown.go("/console/feeds/billing%3A%3Ainvoices")
        table = shown.page.locator("#tail")
        expect(shown.page.get_by_text("live", exact=True)).to_be_visible()
        shop.sell("billing::invoices", 400)
        head = shop.head("billing::invoices")
        wait_until(lambda: first_id(table) == head, what="the tail to show the head")
        expect(table.get_by_text("350 more that came too fast to be shown")).to_be_visible()


def test_a_search_by_key_finds_what_was_and_what_comes(shop: Shop, browser: Browser) -> None:
    feed = shop.orders
    for number in range(3):
        assert feed.post({"changes": {"uuid": "order-of-ann", "number": number}}).status_code == 200
        shop.sell("shop::orders", 2)
    with tab(browser, shop.server.url) as shown:
        shown.go(ORDERS)
        shown.page.get_by_label("Search entries by key").fill("order-of-ann")
        shown.page.get_by_role("search").get_by_role("button").click()
        rows = shown.page.locator("#tail tbody tr")
        expect(rows).to_have_count(3)
        expect(shown.page.get_by_text("live", exact=True)).to_be_visible()
        shop.sell("shop::orders", 2)
        assert feed.post({"changes": {"uuid": "order-of-ann", "number": 3}}).status_code == 200
        expect(rows).to_have_count(4)
        expect(rows.first).to_contain_text('"number":3')
        rows.first.get_by_role("link").click()
        expect(shown.page.get_by_role("heading", level=1)).to_contain_text("Entry")
        expect(shown.page.get_by_role("row", name=re.compile("warehouse"))).to_contain_text("waiting")


def test_consumers_show_their_lag_and_a_chart_of_it_that_is_a_table_too(shop: Shop, browser: Browser) -> None:
    with tab(browser, shop.server.url) as shown:
        shown.go("/console/consumers")
        row = shown.page.get_by_role("row", name=re.compile("crm"))
        expect(row).to_contain_text(f"{shop.head('shop::customers') - 40}")
        chart = shown.page.get_by_role("figure", name=re.compile("crm"))
        expect(chart.get_by_role("img")).to_be_visible()
        assert chart.locator("path.line").get_attribute("d")
        chart.get_by_text("As a table").click()
        expect(chart.get_by_role("row").nth(1)).to_contain_text("20")


def test_processes_alarms_and_backup_say_what_is_known(shop: Shop, browser: Browser) -> None:
    shop.report()
    with tab(browser, shop.server.url) as shown:
        shown.go("/console/processes")
        for name, state in (("vmapi-db-1", "stuck"), ("billing-db-1", "idle"), ("shop-db-1", "moving")):
            expect(shown.page.get_by_role("rowheader", name=re.compile(name))).to_contain_text(state)
        shown.go("/console/alarms")
        expect(shown.page.get_by_role("row", name=re.compile("stalled")).first).to_contain_text(
            "does not move"
        )
        shown.page.get_by_role("link", name="What to do about stalled").first.click()
        expect(shown.page.get_by_role("heading", level=1)).to_have_text("stalled")
        expect(shown.page.get_by_role("heading", name="What to do")).to_be_visible()
        shown.go("/console/backup")
        expect(shown.page.get_by_text("does not see an archive")).to_be_visible()
        expect(shown.page.get_by_text("8 d 23 h")).to_be_visible()
        expect(shown.page.get_by_role("table", name=re.compile("what retention keeps"))).to_contain_text(
            "archive-1"
        )
        shown.go("/console/publishers")
        expect(shown.page.get_by_role("row", name=re.compile("vmapi-db-1"))).to_contain_text("4,210")


def test_a_process_that_failed_is_shown_with_its_error_and_can_be_removed(
    shop: Shop, browser: Browser
) -> None:
    body = report("shop::orders") | {"state": "failed", "code": "agent-fenced", "detail": "a newer one runs"}
    shop.server.http.put("/reports/agent/shop-db-1", json=report("shop::orders")).raise_for_status()
    shop.server.http.put("/reports/agent/fenced-one", json=body).raise_for_status()
    with tab(browser, shop.server.url) as shown:
        page = shown.page
        shown.go("/console/processes")
        expect(page.get_by_text("a newer one runs")).to_be_visible()
        expect(page.get_by_role("link", name="What to do about agent-fenced")).to_have_attribute(
            "href", "/console/runbook/agent-fenced"
        )
        expect(page.get_by_role("rowheader", name=re.compile("fenced-one"))).to_contain_text("failed")
        expect(page.get_by_role("button", name="Remove the agent shop-db-1")).to_have_count(0)  # it lives
        page.get_by_role("button", name="Remove the agent fenced-one").click()
        expect(page.get_by_role("status").filter(has_text="is removed")).to_contain_text("fenced-one")
        expect(page.get_by_role("rowheader", name=re.compile("fenced-one"))).to_have_count(0)
    standing = [
        one for one in shop.server.http.get("/alarms").json()["alarms"] if one.get("cleared-at") is None
    ]
    assert "agent-fenced" not in {one["code"] for one in standing}
    kept = shop.server.http.get("/console/processes", params={"removed": "shop-db-1"}).text
    assert "is removed" not in kept, "a link that says so is not taken at its word"


def test_a_report_with_impossible_numbers_leaves_the_page_as_it_is(shop: Shop) -> None:
    body = report("", waiting=1)
    body["facts"] = {BACKUP_WINDOW_BEGIN.name: -1e300, BACKUP_WINDOW_END.name: 1e300, BACKUP_LAG.name: 1e300}
    try:
        shop.server.http.put("/reports/backup/mad", json=body).raise_for_status()
        for path in ("/console/backup", "/console/processes"):
            page = shop.server.http.get(path)
            assert page.status_code == 200
            assert "mad" in page.text
            assert "archive-1" in page.text
    finally:
        body["facts"] = {}
        shop.server.http.put("/reports/backup/mad", json=body).raise_for_status()


def test_a_link_that_says_who_was_released_is_not_taken_at_its_word(shop: Shop) -> None:
    feed = Feed(shop.server, "shop::stuck")
    feed.agent = "twice-db-1"
    assert feed.register().status_code == 200
    assert feed.post({"changes": {"uuid": "one"}}).status_code == 200
    assert feed.post({"changes": {"uuid": "twice"}, "sequence-id": 1}).status_code == 409

    def notice(who: str) -> bool:
        page = shop.server.http.get("/console/publishers", params={"released": who})
        assert page.status_code == 200
        return "is lifted" in page.text

    assert not notice("twice-db-1"), "it stands in quarantine"
    assert not notice("nobody-knows-it")
    assert shop.server.http.post("/publishers/twice-db-1/release").status_code == 200
    assert notice("twice-db-1")


def test_release_works_by_keyboard_alone(shop: Shop, browser: Browser) -> None:
    agent = shop.quarantine()
    with tab(browser, shop.server.url) as shown:
        page = shown.page
        shown.go("/console")
        expect(page.get_by_role("heading", name=re.compile("alarm"))).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        walk_to(page.get_by_role("navigation").get_by_role("link", name="Publishers"))
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Publishers")
        button = page.get_by_role("button", name=f"Release {agent} in every feed")
        walk_to(button)
        assert button.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").filter(has_text="is lifted")).to_contain_text(agent)
        expect(button).to_have_count(0)
    assert shop.feeds["shop::customers"].post({"changes": {"uuid": "again"}}).status_code == 200


def walk_to(wanted: Locator) -> None:
    """Press Tab until this has the focus."""
    for _ in range(60):
        if wanted.evaluate("one => one === document.activeElement"):
            return
        wanted.page.keyboard.press("Tab")
    raise AssertionError("Tab does not lead there")


def test_markup_in_names_keys_and_values_is_text(
    shop: Shop, browser: Browser, server_with_markup: Feed
) -> None:
    with tab(browser, shop.server.url) as shown:
        shown.go(f"/console{server_with_markup.path}")
        rows = shown.page.locator("#tail tbody tr")
        expect(rows.first).to_contain_text(MARKUP.replace('"', '\\"'))
        expect(shown.page.get_by_text("live", exact=True)).to_be_visible()
        assert server_with_markup.post({"key": f"live {MARKUP}", "changes": {"a": MARKUP}}).status_code == 200
        expect(rows.first).to_contain_text(f"live {MARKUP}")
        shown.go(f"/console{server_with_markup.path}?key={MARKUP.replace('&', '%26')}")
        expect(shown.page.get_by_label("Search entries by key")).to_have_value(MARKUP)
        for path in (
            "/console",
            "/console/publishers",
            "/console/consumers",
            "/console/processes",
            "/console/alarms",
        ):
            shown.go(path)
            expect(shown.page.get_by_text("<img").first).to_be_visible()
            assert shown.page.locator("img").count() == 0


@pytest.fixture
def server_with_markup(shop: Shop) -> Feed:
    """A feed in which all that can be markup is: key, value, names of publisher and listener. A feed's name can't be."""
    feed = Feed(shop.server, "markup::feed")
    feed.agent = MARKUP_NAME
    assert feed.register().status_code == 200
    assert feed.listener(MARKUP_NAME).status_code == 200
    assert feed.post({"key": MARKUP, "changes": {"uuid": MARKUP}}).status_code == 200
    told = report("markup::feed", "stuck", detail=MARKUP, source_position=MARKUP, code=MARKUP)
    shop.server.http.put("/reports/capture/markup", json=told).raise_for_status()
    return feed


def test_a_page_as_it_is_sent_shows_the_same(shop: Shop) -> None:
    sent = shop.server.http.get(ORDERS).text
    table = re.search(r'<table[^>]* id="tail".*?</table>', sent, re.DOTALL)
    assert table is not None
    found = re.search(r"<tbody.*?<th[^>]*>\s*(?:<a[^>]*>)?(\d+)", table[0], re.DOTALL)
    assert found is not None, table[0][:1000]
    assert int(found[1]) == shop.head("shop::orders")
    assert "as of this page" in sent


@pytest.mark.soak(sibling="test_a_page_as_it_is_sent_shows_the_same")
def test_without_scripts_a_page_shows_the_same(shop: Shop, browser: Browser) -> None:
    with tab(browser, shop.server.url, java_script_enabled=False) as shown:
        shown.go(ORDERS)
        assert first_id(shown.page.locator("#tail")) == shop.head("shop::orders")
        expect(shown.page.locator("#tail-state")).to_have_text("as of this page")


def test_no_page_is_kept_framed_or_given_other_code(shop: Shop) -> None:
    for path in (*PAGES, "/console/static/console.css", "/console/nowhere", f"{ORDERS}/tail?after=0"):
        with shop.server.http.stream("GET", path) as answer:
            policy = answer.headers["content-security-policy"]
            assert "default-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == ("no-cache" if "static" in path else "no-store")


def test_a_server_without_tokens_answers_to_no_other_name(shop: Shop) -> None:
    answer = shop.server.http.get("/console", headers={"Host": "rebound.example"})
    assert answer.status_code == 400
