"""Whether Spark is about to push filters to a batch reader: for the data sources, which do so only for who asks for it.

Spark 4.2 keeps what a reader made of one query's filter with the DataFrame, and takes it for that DataFrame's next scan
without a filter too, be it in a later query or elsewhere in the same one (a union, a join with itself). That scan would lack
rows without a word, and calls nothing of ours that could prevent it. Hence the option ``pushdown``, which is ``off``.
"""

from __future__ import annotations

import sys
from typing import Final

_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def offered() -> bool:
    """Tell whether Spark is about to push filters to a reader, in the process that this is.

    A reader that overrides ``pushFilters`` makes Spark fail where spark.sql.python.filterPushdown.enabled is false, and a
    data source is not told of that setting. But the process that pushes filters is one of its own.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or getattr(main, "name", "") == _WORKER
