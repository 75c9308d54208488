"""PostgreSQL as a source: catalogue, triggers, copies, and the steps by which the agent marks and reads the outbox.

In: a database that the application goes on using. Out: marked rows in their canonical form. Many transactions run at once,
and ids are handed out before commits, so the agent never tails ids: see ``look`` for how whole transactions are found.
"""
