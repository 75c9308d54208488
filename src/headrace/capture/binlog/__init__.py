"""The binlog's format: bytes <-> values. Pure."""
