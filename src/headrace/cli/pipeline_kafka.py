"""``headrace pipeline kafka``: send a captured feed to Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from headrace.cli.health_options import HealthOptions
from headrace.cli.spark_jobs import (
    SparkOptions,
    check_installed,
    lag_text,
    progress_teller,
    stopping,
    tell,
)
from headrace.cli.streaming_jobs import observed_job
from headrace.entries.feed import check_feed_id
from headrace.errors import ConfigInvalid

if TYPE_CHECKING:
    from headrace.pipeline.kafka.job import Progress, Summary
    from headrace.pipeline.session import SessionSettings


def kafka_command(
    *,
    feed: str,
    sink_uri: Annotated[str, Parameter(env_var="HEADRACE_SINK_URI")],
    checkpoint: str,
    config: Path | None = None,
    once: Annotated[bool, Parameter(negative=())] = False,
    start: str = "",
    listener: str = "",
    archive: str = "",
    max_entries: int = 200_000,
    log_file: Path | None = None,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    spark: SparkOptions | None = None,
    health: HealthOptions | None = None,
) -> None:
    """Send a captured feed to Kafka, as messages of TiCDC's Simple Protocol. Until told to stop, or --once.

    Parameters
    ----------
    feed
        The change-feed-id of a feed that `headrace capture` writes.
    sink_uri
        kafka://HOST:PORT/TOPIC?word=value&... in TiCDC's words (HEADRACE_SINK_URI).
    checkpoint
        Folder of Spark's record of how far the job is, this job's alone.
    config
        A changefeed file of TiCDC's form: dispatchers, BOOTSTRAP, encoding, filter.
    once
        Stop at the entry that is the newest now.
    start
        Where an empty checkpoint begins: first (the feed's first entry), oldest (the first that the server retains), a
        sequence id, an LSN, an RFC 3339 time, head. Default: oldest, with --archive first.
    listener
        Name under which the server's retention waits for this job. Default: it does not wait.
    archive
        URL of the KWAL segments that hold what the server retains no longer.
    max_entries
        Entries of one batch, about. Consumers keep so much in memory.
    log_file
        Where Spark's own output goes. Default: CHECKPOINT.log, or headrace-kafka.log if that is a URL.
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    json
        Print one JSON document at the end, and JSON lines of progress on stderr.
    """
    check_feed_id(feed)
    check_installed()
    from headrace.pipeline.kafka.beginning import read_start
    from headrace.pipeline.kafka.sink import parse_sink

    read_start(start or "oldest")
    sink = parse_sink(sink_uri, _text_of(config))
    token, ca = ("" if file is None else str(file) for file in (token_file, ca_file))
    log = log_file or Path("headrace-kafka.log" if "://" in checkpoint else f"{checkpoint.rstrip('/')}.log")
    tell(f"starting Spark; its own output goes to {log}")
    name = f"headrace kafka of {feed}"
    settings = (spark or SparkOptions()).session(name, log, checkpoint=checkpoint, kafka=True)
    place = {"feed": feed, "sink": sink, "checkpoint": checkpoint, "server": server}
    files = {"token_file": token, "ca_file": ca, "listener": listener, "archive": archive, "start": start}
    progress = progress_teller(_line, as_json=json)
    summary = _run(settings, health, **place, **files, once=once, entries_max=max_entries, progress=progress)
    _print_summary(summary, as_json=json)


def _text_of(config: Path | None) -> str:
    if config is None:
        return ""
    try:
        return config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{config}: can't be read: {error}", hint="Check --config.") from None


def _run(settings: SessionSettings, health: HealthOptions | None, **job: Any) -> Summary:
    """Run the job in a session of its own, until it ends or a signal comes."""
    from headrace.pipeline.kafka.job import run_kafka
    from headrace.pipeline.session import open_session, stop_session

    with observed_job("kafka", health, job["checkpoint"], job) as seen:
        seen.spark = spark = open_session(settings)
        job["progress"] = seen.telling(job["progress"])
        try:
            with stopping() as stop:
                return run_kafka(spark, **job, restarting=seen.restarting, stop=stop, anew=seen.anew)
        finally:
            stop_session(spark)


def _line(now: Progress) -> str:
    return f"batch {now.batches}, entry {now.sequence_id}, {lag_text(now)}, {now.rows_per_second:.0f} rows/s"


def _print_summary(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(summary).decode())
        return
    for line in report(summary):
        print(line)


def report(summary: Summary) -> list[str]:
    """Return what a job did, in lines for a person."""
    lines = [f"begun at entry {summary.began_at}"] if summary.began_at is not None else []
    lines += [
        f"{summary.rows} rows and {summary.statements} statements in {summary.batches} batches, {summary.seconds:.1f} s"
    ]
    lines += [f"  topic {topic}: {partitions} partitions" for topic, partitions in summary.topics.items()]
    lines += [f"warning: {warning}" for warning in summary.warnings]
    mark = "no WATERMARK was sent" if summary.watermark is None else f"last WATERMARK: {summary.watermark}"
    return [*lines, mark]
