"""Attach, as far as it is the same for every database: which tables and columns, their schema, what a row becomes. Pure.

In: what a catalogue says of a table, and rows as the database's driver gives them. Out: the schema entry, keys and JSON of
``docs/formats/attached-change.md``. The triggers themselves are each database's own (``publisher/sqlite``).
"""
