"""Takes the pictures in ``docs/images``: ``python -m tests.integration.console.pictures``, of a server that was busy.

``--minutes N``: how long it is busy before (default 12), so that the charts have something to show.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.integration.console.browser import chromium, tab
from tests.integration.console.shop import FEEDS, Shop
from tests.servers import serving
from tests.waiting import wait_until

IMAGES = Path(__file__).parents[3] / "docs" / "images"
SIZE = {"width": 1180, "height": 740}
TALL = {"width": 1180, "height": 1000}


def keep_busy(shop: Shop, until: float) -> bool:
    """Let the shop sell once a second, and its listeners read, some faster than others; True once it is time."""
    if time.time() - shop.busy_at < 1:
        return time.time() >= until
    shop.busy_at = time.time()
    for number, name in enumerate(FEEDS):
        if name != "shop::customers":
            shop.sell(name, shop.random.randrange(1, 9 - number))
    wave = int(until - time.time()) % 240
    behind = 30 + (240 - wave) * 4 if wave < 120 else 30 + wave * 2
    for name, listener, lag in (
        ("shop::orders", "warehouse", shop.random.randrange(0, 6)),
        ("shop::orders", "search-index", behind),
        ("billing::invoices", "ledger", shop.random.randrange(0, 30)),
        ("vmapi::vm", "cache", shop.random.randrange(0, 12)),
    ):
        shop.read(name, listener, max(1, shop.head(name) - lag))
    shop.report()
    return time.time() >= until


def main() -> None:
    """Take them all."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--minutes", type=float, default=12)
    words.add_argument("--to", type=Path, default=IMAGES)
    given = words.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), grpc=True) as server:
        shop = Shop(server)
        shop.open()
        shop.subscribe("archive-1", 150)
        until = time.time() + 60 * given.minutes
        wait_until(lambda: keep_busy(shop, until), 60 * given.minutes + 60, what="the shop to have been busy")
        shop.quarantine()
        shop.read("shop::orders", "warehouse", shop.head("shop::orders"))
        entry = shop.head("shop::orders") - 2
        orders = "/console/feeds/shop%3A%3Aorders"
        with chromium() as browser:
            for name, path, scheme in (
                ("feeds", "/console", "light"),
                ("tail", orders, "light"),
                ("tail-dark", orders, "dark"),
                ("consumers", "/console/consumers", "light"),
                ("publishers", "/console/publishers", "light"),
                ("trace", f"{orders}/trace?sequence-id={entry}", "light"),
                ("alarms", "/console/alarms", "light"),
                ("processes", "/console/processes", "dark"),
                ("backup", "/console/backup", "light"),
            ):
                with tab(
                    browser, server.url, color_scheme=scheme, viewport=TALL if name == "consumers" else SIZE
                ) as shown:
                    shown.go(path)
                    if path == orders:
                        shown.page.get_by_text("live", exact=True).wait_for()
                        shop.sell("shop::orders", 3)
                        shown.page.get_by_role(
                            "link", name=str(shop.head("shop::orders")), exact=True
                        ).wait_for()
                    shown.page.screenshot(path=given.to / f"console-{name}.png")


if __name__ == "__main__":
    main()
