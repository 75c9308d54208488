"""What a job tells its source."""

from __future__ import annotations

from headrace.pipeline.connection import Endpoint
from headrace.pipeline.kafka.job import source_options

ENDPOINT = Endpoint("http://127.0.0.1:8470", "", "", 20.0)


def test_what_is_not_given_is_not_told() -> None:
    options = source_options(ENDPOINT, "shop", 1000, listener="kafka", archive="")
    assert options == {
        "endpoint": ENDPOINT.server,
        "feeds": "shop",
        "max-entries": "1000",
        "partition-entries": options["partition-entries"],
        "retry-seconds": "20",
        "listener": "kafka",
    }
