"""The retention options of ``headrace serve``, as settings."""

from __future__ import annotations

from headrace.errors import ConfigInvalid
from headrace.log.retention.plan import HYDRATION_S_MAX, RetentionSettings
from headrace.runtime.settings import parse_duration, parse_size


def parse_retention(
    retention: str, bytes_max: str | None, subscriber_expiry: str, every: str, hydration_lease: str
) -> RetentionSettings:
    """Return the settings that the options mean; ConfigInvalid naming the option that is wrong."""
    hydration_s = parse_positive_duration(hydration_lease, "--hydration-lease")
    if hydration_s > HYDRATION_S_MAX:
        raise ConfigInvalid("--hydration-lease: it must not be more than 6 h", hint="A lease can be renewed.")
    return RetentionSettings(
        retention_s=parse_positive_duration(retention, "--retention"),
        bytes_max=None if bytes_max is None else parse_segment_size(bytes_max, "--retention-bytes-max"),
        subscriber_expiry_s=parse_positive_duration(subscriber_expiry, "--subscriber-expiry"),
        hydration_s=hydration_s,
        every_s=parse_positive_duration(every, "--retention-every"),
    )


def parse_positive_duration(text: str, name: str) -> float:
    """Return a time in seconds that is more than none; ConfigInvalid naming the option."""
    return _positive(parse_duration(text, name), name)


def parse_segment_size(text: str, name: str = "--segment-size") -> int:
    """Return a size in bytes that is more than none; ConfigInvalid naming the option."""
    return int(_positive(parse_size(text, name), name))


def _positive(number: float, name: str) -> float:
    if number <= 0:
        raise ConfigInvalid(f"{name}: it must be more than 0", hint="Leave it out for its default.")
    return number
