"""The tests. Shared parts are imported by full name, such as ``from tests.waiting import wait_until``."""
