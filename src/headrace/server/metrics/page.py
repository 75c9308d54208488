"""``docs/reference/metrics.md``, made of the declarations. ``scripts/reference`` writes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.runtime import process_metrics, progress_metrics
from headrace.runtime.metric import Described
from headrace.server.metrics.exposition import SUBJECTS

AGENT_METRICS: Final = (*progress_metrics.METRICS, *process_metrics.METRICS)
"""What a long-running process serves on its own health address."""

_HEAD: Final = """# Metrics

Made by `scripts/reference` from the declarations in `src/headrace/server/metrics` and `src/headrace/runtime`. How to scrape
them, the alerts and the dashboard: [Watch a server with Prometheus](../howto/monitor.md).

Names follow Prometheus' conventions: seconds and bytes, `_total` where something only grows. A histogram has `_bucket`,
`_sum` and `_count`. What is not known has no sample. The `kdb_wal_` names are RFC-010's.

`GET /metrics` of a server needs an admin's token. Counters begin at 0 when the process starts, if nothing else is said.
"""
_AGENT: Final = """
## A long-running process's own `/metrics`

Served at the `health` address of its settings, without a token; see [Is it alive, does it move?](../howto/health.md).
"""


def every_metric() -> list[Described]:
    """Return all that is declared, those of the server first; a name stands once."""
    own = [metric for subject in SUBJECTS for metric in subject.metrics]
    return [*own, *(one for one in AGENT_METRICS if one not in own)]


def metrics_page() -> str:
    """Return the page."""
    sections = [f"\n## {subject.title}\n{_table(subject.metrics)}" for subject in SUBJECTS]
    return "".join([_HEAD, *sections, _AGENT, _table(AGENT_METRICS)])


def _table(metrics: Iterable[Described]) -> str:
    rows = (
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.meaning} |\n"
        for one in metrics
    )
    return "\n| name | kind | labels | means |\n|---|---|---|---|\n" + "".join(rows)
