"""Our errors come back out of Spark's."""

from __future__ import annotations

import json

from headrace.errors import FeedRecreated, QueryFailed, ServerUnreachable, ValueUnfit
from headrace.pipeline.failures import error_of, failed_at
from headrace.pipeline.source.offset import Offset, Place, to_json

LSN = "0687f0b7e9dc0000.0000000001.0000000012"

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


def test_a_worker_that_starts_too_late_is_waited_for() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST\n"
        "Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back\n"
    )
    error = error_of(RuntimeError(text))
    assert (error.code, error.retryable) == ("spark-busy", True)


def test_a_plan_is_no_cause() -> None:
    text = "[UNRESOLVED_COLUMN] A column with name `x` cannot be resolved. SQLSTATE: 42703;\n'Project ['x]\n+- rate\n"
    assert error_of(RuntimeError(text)).detail == text.splitlines()[0]


FAILED = """[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred
  File "batches.py", line 1, in call
ZeroDivisionError: x
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 1, runId = 2]
Current Committed Offsets: {COMMITTED}
Current Available Offsets: {a.b.PythonMicroBatchStream@1: AVAILABLE}

Logical Plan:
~Relation Error: none
"""


def failed(committed: str, available: str) -> str:
    text = FAILED.replace("COMMITTED", f"a.b.PythonMicroBatchStream@1: {committed}" if committed else "")
    return error_of(RuntimeError(text.replace("AVAILABLE", available))).detail


def test_what_nobody_knows_says_in_which_entries_it_happened() -> None:
    ends = [
        json.dumps(
            to_json(
                Offset(
                    {
                        name: Place(incarnation="i", sequence_id=at, lsn=LSN, began_after=began)
                        for name, at, began in places
                    }
                )
            )
        )
        for places in (
            [("shop", 12, None), ("bank", 5, None)],
            [("shop", 24, None), ("bank", 5, None)],
            [("shop", 24, 8)],
        )
    ]
    before, after, first = ends
    shop = f"feed shop, entries 13 to 24, up to LSN {LSN}"
    bank = f"feed bank, after entry 5, LSN {LSN}"
    assert failed(before, after) == f"ZeroDivisionError: x ({bank}; {shop})"
    assert failed("", first) == f"ZeroDivisionError: x (feed shop, entries 9 to 24, up to LSN {LSN})"
    assert failed('{"topic":{"0":1}}', '{"topic":{"0":2}}') == "ZeroDivisionError: x"


def test_who_knows_where_it_happened_says_so() -> None:
    error = failed_at(RuntimeError("java.io.FileNotFoundException: part-1.parquet"), "table shop.a")
    assert error.detail == "table shop.a: java.io.FileNotFoundException: part-1.parquet"
    own = ServerUnreachable("x")
    assert failed_at(own, "table shop.a") is own
    end = Offset({"shop": Place(incarnation="i", sequence_id=24, lsn=LSN, began_after=8)})
    cause = f"headrace.errors.querying.QueryFailed: {error.detail}"
    text = FAILED.replace("ZeroDivisionError: x", cause).replace("AVAILABLE", json.dumps(to_json(end)))
    assert error_of(RuntimeError(text)).detail == (
        f"{error.detail} (feed shop, entries 9 to 24, up to LSN {LSN})"
    )


def test_a_querys_hint_does_not_speak_to_a_listener() -> None:
    text = "headrace.errors.answers.FeedRecreated: the feed is another one\nheadrace.pipeline.failures.QueryFailed: x"
    assert isinstance(error_of(RuntimeError(text)), QueryFailed)
    assert "Start the job anew" in error_of(RuntimeError(text.splitlines()[0])).advice
