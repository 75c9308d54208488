"""MariaDB or MySQL as a source: the rows of ``Outbox.add``. Tables are not attached here: capture reads the binlog.

In: an outbox that the application writes. Out: :class:`~headrace.publisher.mysql.source.MysqlSource`.
"""
