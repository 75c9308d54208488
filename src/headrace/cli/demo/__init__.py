"""``headrace demo``: the whole flow on this machine, with two SIGKILLs in the middle and a mistake at its end."""

from __future__ import annotations

import asyncio
import json as json_text
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from headrace.cli.demo.run import FEED, Demo, Plan, Ran
from headrace.cli.demo.verdict import Count, percentile
from headrace.errors import Usage
from headrace.runtime.logs import configure_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

app = App(name="demo", help="Run the whole flow on this machine and compare what came out.")


@app.default
def demo_command(
    *,
    spark: bool = True,
    seconds: float = 20.0,
    per_second: float = 120.0,
    seed: int = 1,
    keep: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Run server, application, agent and listener, kill two of them, and compare all that came out, row by row.

    Then the application spoils its table, and the moment before is restored from the backup, and compared too.

    Parameters
    ----------
    spark
        Build the Spark tables too, and restore (needs the extras `spark` and `backup`, Java and `headrace pipeline setup`).
    seconds
        How long the application runs transactions.
    per_second
        Transactions a second.
    seed
        Seed of the application's random transactions.
    keep
        Work in this folder, which must not exist yet, and leave it behind.
    json
        Print the result as one JSON document.
    """
    configure_logs(level="error")  # two kills make warnings enough; the children have logs of their own
    folder = _make_folder(keep)
    started = time.monotonic()

    def tell(line: str) -> None:
        if not json:
            print(f"{time.monotonic() - started:6.1f} s  {line}", flush=True)

    try:
        return asyncio.run(
            _demo(Plan(folder, seconds, per_second, seed, archived=spark), spark, tell, as_json=json)
        )
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _make_folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        keep.mkdir(parents=True)
    except OSError as error:
        raise Usage(
            f"--keep {keep}: can't be made: {error.strerror}", hint="Name a folder that is not there."
        ) from None
    return keep


async def _demo(plan: Plan, spark: bool, tell: Callable[[str], None], *, as_json: bool) -> int:
    demo = Demo(plan, tell)
    document: dict[str, Any] = {}

    async def after_core(ran: Ran) -> None:
        _report(ran.counts, _core_lines(ran), as_json=as_json)
        document.update(_core_document(ran))
        if spark:
            document["restored"] = await _on_spark(demo, ran, tell, as_json=as_json)
            document["counts"] = [_count_document(count) for count in ran.counts]

    ran = await demo.run(after_core)
    if as_json:
        print(json_text.dumps(document | {"faultless": ran.faultless}), flush=True)
    elif ran.faultless:
        print("nothing missing, doubled, out of order or torn")
    else:
        print("error: the readers do not agree with the source, see above", file=sys.stderr)
    return 0 if ran.faultless else 1


async def _on_spark(demo: Demo, ran: Ran, tell: Callable[[str], None], *, as_json: bool) -> dict[str, Any]:
    """Build tables of the feed, then spoil the source and restore the moment before; returns what is to say of that."""
    from headrace.cli.demo.tables import open_spark, restored_counts, spark_counts
    from headrace.pipeline.session import stop_session

    folder = demo.plan.folder
    tell("Spark starts, to read the feed into Delta tables")
    session = await asyncio.to_thread(open_spark, folder)
    try:
        tell("Spark runs")
        counts = await asyncio.to_thread(spark_counts, session, ran, folder / "tables", FEED, tell)
        _report(counts, [], as_json=as_json)
        ran.counts += counts
        moment = await demo.spoil(ran)
        tell(f"an UPDATE without its WHERE empties every account: {moment.spoilt} rows are wrong, everywhere")
        tell(f"entry {moment.sequence_id} was the last one before it; restoring lsn={moment.lsn}")
        restored, seconds = await asyncio.to_thread(
            restored_counts, session, ran, demo.plan.archive, moment.lsn, folder / "restored"
        )
    finally:
        await asyncio.to_thread(stop_session, session)
    _report(restored, [f"restored in {seconds:.1f} s, from the archive alone"], as_json=as_json)
    ran.counts += restored
    return {"lsn": moment.lsn, "spoilt-rows": moment.spoilt, "seconds": seconds}


def _core_lines(ran: Ran) -> list[str]:
    return [
        f"{ran.commits} commits, {ran.entries} entries",
        f"from commit to listener: p50 {percentile(ran.undisturbed_ms, 0.5):.1f} ms, "
        f"p99 {percentile(ran.undisturbed_ms, 0.99):.1f} ms before the first kill; "
        f"p50 {percentile(ran.delays_ms, 0.5):.1f} ms, p99 {percentile(ran.delays_ms, 0.99):.1f} ms with both kills",
    ]


def _report(counts: Sequence[Count], lines: Sequence[str], *, as_json: bool) -> None:
    if not as_json:
        for line in (*map(str, counts), *lines):
            print(line, flush=True)


def _core_document(ran: Ran) -> dict[str, Any]:
    return {
        "commits": ran.commits,
        "entries": ran.entries,
        "undisturbed-ms": _delays(ran.undisturbed_ms),
        "with-kills-ms": _delays(ran.delays_ms),
        "counts": [_count_document(count) for count in ran.counts],
    }


def _delays(values: list[float]) -> dict[str, float]:
    return {f"p{share}": round(percentile(values, share / 100), 3) for share in (50, 99)}


def _count_document(count: Count) -> dict[str, Any]:
    return {
        "reader": count.reader,
        "table": count.table,
        "rows": count.rows,
        "missing": count.missing,
        "duplicated": count.duplicated,
        "out-of-order": count.out_of_order,
        "torn": count.torn,
    }
