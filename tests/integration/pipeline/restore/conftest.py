"""The captured database of the tests of tables."""

from tests.integration.pipeline.tables.conftest import captured, log_server, mariadb

__all__ = ["captured", "log_server", "mariadb"]
