"""Our errors come back out of Spark's."""

from __future__ import annotations

from headrace.errors import FeedRecreated, ServerUnreachable, ValueUnfit
from headrace.pipeline.failures import QueryFailed, error_of

WORKER = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure
Traceback (most recent call last):
  File "rows.py", line 1, in read
headrace.errors.ValueUnfit: feed f::1, sequence id 7, table main.t, column n: Expected `int`, got `str` - at `$.n`

\tat org.apache.spark.Something(Some.scala:1)
"""


def test_a_workers_error_is_itself_again() -> None:
    error = error_of(RuntimeError(WORKER))
    assert type(error) is ValueUnfit
    assert error.detail.startswith("feed f::1, sequence id 7, table main.t, column n: Expected")
    assert error.exit_code == 3


def test_the_last_error_of_a_chain_counts() -> None:
    text = "headrace.errors.ServerUnreachable: gone\n...\nheadrace.errors.FeedRecreated: the feed is another one\n"
    assert type(error_of(RuntimeError(text))) is FeedRecreated


def test_our_own_goes_through_and_others_are_told_in_a_line() -> None:
    own = ServerUnreachable("x")
    assert error_of(own) is own
    error = error_of(RuntimeError("first\njava.lang.OutOfMemoryError: Java heap space\n  at x"))
    assert isinstance(error, QueryFailed)
    assert error.detail == "java.lang.OutOfMemoryError: Java heap space"
    assert error_of(RuntimeError("")).detail == "RuntimeError"
