"""``headrace demo``: the whole flow on this machine, with two SIGKILLs in the middle, compared row by row at the end."""

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

    Parameters
    ----------
    spark
        Build the Spark tables too (needs the extra `spark`, Java and `headrace pipeline setup`).
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
        return asyncio.run(_demo(Plan(folder, seconds, per_second, seed), spark, tell, as_json=json))
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
            from headrace.cli.demo.tables import spark_counts

            tell("Spark starts, to read the feed into Delta tables")
            counts = await asyncio.to_thread(spark_counts, ran, plan.folder / "tables", FEED, tell)
            _report(counts, [], as_json=as_json)
            ran.counts += counts
            document["counts"] = [_count_document(count) for count in ran.counts]

    ran = await demo.run(after_core)
    if as_json:
        print(json_text.dumps(document | {"faultless": ran.faultless}), flush=True)
    elif ran.faultless:
        print("nothing missing, doubled, out of order or torn")
    else:
        print("error: the readers do not agree with the source, see above", file=sys.stderr)
    return 0 if ran.faultless else 1


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
