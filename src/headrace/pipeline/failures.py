"""A query's failure -> our own error again. Errors cross from Python workers to the driver as text in a JVM exception.

Called wherever a query or a job is waited for.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import HeadraceError, every_error

# A traceback's last line: "headrace.errors.ValueUnfit: feed f, sequence id 7, ...".
_LINE: Final = re.compile(r"\bheadrace\.[a-z_.]+\.([A-Z]\w+): ([^\n]+)")
_BY_NAME: Final = {kind.__name__: kind for kind in every_error()}


class QueryFailed(HeadraceError):
    """A Spark query failed for a reason that is none of ours."""

    code = "query-failed"
    hint = (
        "The query's log file has Spark's own account. It goes on where it stopped when it is started again."
    )


def error_of(failure: BaseException) -> HeadraceError:
    """Return what failed as one of our errors: the one that a worker or the source raised, else QueryFailed."""
    if isinstance(failure, HeadraceError):
        return failure
    text = str(failure)
    found = [(name, detail) for name, detail in _LINE.findall(text) if name in _BY_NAME]
    if found:
        name, detail = found[-1]
        return _BY_NAME[name](detail.strip())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if re.search(r"(Error|Exception)\b.*: ", line)]
    return QueryFailed((causes or lines or [type(failure).__name__])[-1].lstrip(": ")[:500])
