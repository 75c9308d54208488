"""Simple feeds as tables: control entries and messages of captured tables -> steps for the tables job, and typed rows.

In comes what a batch has of a captured feed (docs/howto/capture.md): control entries, and where rows stand between them. Out
goes, by :func:`~headrace.pipeline.tables.simple.plan.plan`, what is to be done with each Delta table, in order; and by
:func:`~headrace.pipeline.tables.simple.rows.typed_batches` the rows as Arrow columns. Pure: no JVM, no I/O.
"""
