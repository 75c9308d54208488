"""``writeStream.format("headrace")``: each batch is one atomic append to a feed, there exactly once.

In: a data frame with key, value and op, its rows for one feed in one task. Out: entries, and beside them in the same frame
which query and batch they are (``position``), so that the feed itself says what is there. ``shaping`` has what users call.
"""

from headrace.pipeline.sink.shaping import by_feed, one_task

__all__ = ["by_feed", "one_task"]
