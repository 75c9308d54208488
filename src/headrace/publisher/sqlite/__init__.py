"""SQLite as a source: catalogue, triggers, copies, and the steps by which the agent marks and reads the outbox.

In: a database file that the application goes on using. Out: marked rows in their canonical form. SQLite has one writer at a
time, so the order of outbox ids is the order of commits.
"""
