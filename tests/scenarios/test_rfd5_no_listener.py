"""RFD 5, "Failure scenarios": the API and its agent go on without listeners, and with listeners that are cut off."""

from __future__ import annotations

from pathlib import Path

from tests.agents import AgentProcess
from tests.scenarios.listeners import ListenProcess, content
from tests.scenarios.shop import Shop, fold
from tests.scenarios.watched import WatchedProxy
from tests.servers import Feed, serving
from tests.waiting import wait_until

FEED = "shop"


def test_api_partitioned_from_listeners_persists_without_any_regard_for_its_listener_count(
    tmp_path: Path,
) -> None:
    """ "sdc-changefeed will continue to persist change feed entries without any regard for its listener count. It is
    perfectly reasonable for sdc-changfeed to have zero listeners."
    """
    shop = Shop(tmp_path / "app.db", FEED)
    with (
        serving(tmp_path / "server") as server,
        WatchedProxy(int(server.address.rpartition(":")[2])) as proxy,
        AgentProcess(tmp_path / "agent", server.url, shop.dsn, FEED),
    ):
        feed = Feed(server, FEED)
        listener = ListenProcess(tmp_path / "listener", FEED, f"http://127.0.0.1:{proxy.port}")

        def persisted() -> int:
            """What is persisted once all that was written is; only what is durable outlives the SIGKILL."""
            wait_until(lambda: shop.backlog() == 0, 60, what="the agent to post")
            server.restart()
            return int(server.http.get(feed.path).json()["head-sequence-id"])

        shop.write(40)
        first = persisted()
        assert first >= 40
        assert server.http.get(feed.path).json()["listeners"] == []
        shop.write(40)
        alone = persisted()
        assert alone >= first + 40
        with listener:
            wait_until(lambda: listener.last() == alone, what="a listener that comes late")
            proxy.cut()
            shop.write(40)
            cut_off = persisted()
            assert cut_off >= alone + 40
            assert listener.last() == alone
            proxy.resume()
            wait_until(lambda: listener.last() == cut_off, 60, what="the listener that was cut off")
            shop.write(3)
            wait_until(lambda: fold(listener.lines()) == shop.truth(), what="what is written now")
            assert listener.lines() == content(feed)
