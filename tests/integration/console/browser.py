"""A real browser for tests: Debian's Chromium, driven by Playwright, and everything it says noted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

WAIT_MS_MAX = 30_000

expect.set_options(timeout=WAIT_MS_MAX)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a headless Chromium for the length of a ``with``."""
    program = shutil.which("chromium")
    assert program is not None, "there is no chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """A page of a browser, and what was amiss with it: words on its console, failed requests, requests to elsewhere."""

    page: Page
    origin: str
    amiss: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(WAIT_MS_MAX)
        self._ears: dict[str, Callable[[Any], None]] = {
            "console": lambda said: self.amiss.append(f"{said.type}: {said.text}"),
            "pageerror": lambda error: self.amiss.append(f"error: {error}"),
            "request": self._look_at,
            "requestfailed": self._failed,
        }
        for event, ear in self._ears.items():
            self.page.on(event, ear)  # type: ignore[call-overload]  # one overload for each event

    def go(self, path: str) -> None:
        """Open a page of the console."""
        self.page.goto(f"{self.origin}{path}")

    def leave(self) -> None:
        """Hear no more of the page, and leave it empty for the next."""
        for event, ear in self._ears.items():
            self.page.remove_listener(event, ear)
        self.page.unroute_all()
        self.page.goto("about:blank")

    def _look_at(self, request: Request) -> None:
        if not request.url.startswith(f"{self.origin}/"):
            self.amiss.append(f"asked elsewhere: {request.url}")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # what a page had asked for when it was left
            self.amiss.append(f"failed: {request.url} {request.failure}")


@contextmanager
def tab(browser: Browser, origin: str, **options: Any) -> Iterator[Tab]:
    """Open a page; at the end nothing may be amiss with it.

    With ``options`` in a profile of its own. Without, in one that is kept for the next, as a process each costs more
    than what it shows: it has no cookies at the beginning. After a failure nothing is kept.
    """
    kept = not options and bool(browser.contexts)
    context = browser.contexts[0] if kept else browser.new_context(**options)
    context.clear_cookies()
    done = False
    try:
        opened = Tab(context.pages[0] if context.pages else context.new_page(), origin)
        yield opened
        assert opened.amiss == []
        if not options:
            opened.leave()
            done = True
    finally:
        if not done:
            context.close()
