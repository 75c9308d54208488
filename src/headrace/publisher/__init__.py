"""The publisher: from a committed transaction of the application to entries of a feed, in order, nothing lost or doubled.

In: rows of the outbox, written by :class:`~headrace.publisher.outbox.Outbox` or by the triggers of ``attach`` in the
application's own transaction. Out: whole transactions, posted by the agent. ``outbox`` needs nothing but the driver;
``attach`` and the top level are the same for every database; one folder for each database (``sqlite``) does the rest.
"""
