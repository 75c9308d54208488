"""What goes faster by array operations: received batches as columns, and their check. numpy and pyarrow are optional."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from headrace.errors import SetupMissing
from headrace.wire.batch import ReceivedBatch
from headrace.wire.batch_check import check_batch

if TYPE_CHECKING:
    import pyarrow as pa


def record_batch(
    batches: ReceivedBatch | Sequence[ReceivedBatch],
    *,
    names: Sequence[str] | None = None,
    verify: bool = True,
) -> pa.RecordBatch:
    """Do what :func:`headrace.wire.batch_columns.record_batch` promises; SetupMissing without numpy and pyarrow.

    Give it some 16 batches at once, and turn off the check of the subscription (``Transfer(verify=False)``): here it is part
    of the same walk.
    """
    try:
        from headrace.wire import batch_columns  # noqa: PLC0415  # numpy and pyarrow are optional
    except ImportError as error:
        raise SetupMissing(
            f"columns need numpy and pyarrow: {error}", hint="Run `pip install 'headrace[arrow]'`."
        ) from None
    return batch_columns.record_batch(batches, names=names, verify=verify)


@cache
def fastest_check() -> Callable[[ReceivedBatch], None]:
    """Return what checks a batch as :func:`headrace.wire.batch_check.check_batch` does, by arrays where numpy is there."""
    try:
        from headrace.wire import batch_columns  # noqa: PLC0415  # as above
    except ImportError:
        return check_batch
    return batch_columns.check
