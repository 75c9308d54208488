"""Where a job without a checkpoint begins."""

from __future__ import annotations

from headrace.pipeline.connection import Endpoint
from headrace.pipeline.kafka.job import source_options

ENDPOINT = Endpoint("http://127.0.0.1:8470", "", "", 20.0)


def test_what_an_archive_holds_comes_first() -> None:
    options = source_options(ENDPOINT, "shop", 1000, listener="", archive="/backups/wal")
    assert (options["start"], options["archive"]) == ("1", "/backups/wal")


def test_without_an_archive_it_begins_at_the_oldest_entry() -> None:
    options = source_options(ENDPOINT, "shop", 1000, listener="kafka", archive="")
    assert options == {
        "endpoint": ENDPOINT.server,
        "feeds": "shop",
        "max-entries": "1000",
        "partition-entries": options["partition-entries"],
        "retry-seconds": "20",
        "listener": "kafka",
    }
