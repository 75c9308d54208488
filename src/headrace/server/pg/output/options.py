"""Options of an output plugin, as ``START_REPLICATION … (name 'value', …)`` gives them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from headrace.errors import InvalidRequest

_TRUE: Final = frozenset({"", "1", "on", "t", "true", "y", "yes"})
_FALSE: Final = frozenset({"0", "f", "false", "n", "no", "off"})


def check_names(plugin: str, options: Mapping[str, str], known: Collection[str]) -> None:
    """Raise InvalidRequest, naming the first option that ``plugin`` does not have."""
    for name in options:
        if name not in known:
            raise InvalidRequest(
                f"{plugin} has no option {name[:80]!r}",
                hint=f"It has {', '.join(sorted(known))}.",
                member=name,
            )


def switch(options: Mapping[str, str], name: str, *, unless_given: bool) -> bool:
    """Return an option that is on or off; given without a value it is on, as PostgreSQL's plugins take it."""
    text = options.get(name)
    if text is None:
        return unless_given
    folded = text.strip().lower()
    if folded not in _TRUE | _FALSE:
        raise InvalidRequest(
            f"{name}: {text[:80]!r} is neither on nor off", hint="Write on or off.", member=name
        )
    return folded in _TRUE
