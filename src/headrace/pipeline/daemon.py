"""The process that Spark forks its Python workers from, with what they need imported before the fork.

Named by the session's ``spark.python.daemon.module``. Spark starts one such process for each kind of worker; those that
plan and look up data sources run once or twice in a query's life, so only the one for tasks loads everything at once. A
worker collects garbage after every task; what is frozen here is left out of that.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

import pyspark.daemon

FOR_TASKS = (
    "pyspark.worker",
    "headrace.pipeline.source.readers",
    "headrace.pipeline.tables.rows",
    "headrace.pipeline.tables.folding",
    "headrace.client.http",
)


def main() -> None:
    """Load, freeze what is loaded, then serve forks until Spark closes our stdin."""
    if sys.argv[1:2] == ["pyspark.worker"]:
        for name in FOR_TASKS:
            import_module(name)
        gc.collect()
        gc.freeze()
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
