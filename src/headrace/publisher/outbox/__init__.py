"""The outbox: rows that wait, in the application's own database, to become entries of a feed.

In: the caller's connection, inside the caller's transaction. Out: a row that commits or vanishes with it. Needs nothing but
the database's driver.
"""

from headrace.publisher.outbox.client import Outbox

__all__ = ["Outbox"]
