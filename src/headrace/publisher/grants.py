"""The least rights that a source's users need: as values, and as SQL. Each database has its own list of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple


class Party(StrEnum):
    """Whose right it is: who sets the source up, the agent, or an application that calls ``Outbox.add``."""

    OWNER = "who attaches: the owner of the tables"
    AGENT = "the agent"
    APPLICATION = "an application that calls Outbox.add (one that only writes attached tables needs nothing)"


class Grant(NamedTuple):
    """One privilege; ``target`` is SQL such as ``TABLE headrace.headrace_outbox``."""

    party: Party
    privilege: str
    target: str
    role: str

    @property
    def statement(self) -> str:
        """The statement that grants it."""
        return f"GRANT {self.privilege} ON {self.target} TO {self.role};"

    @property
    def revoked(self) -> str:
        """The statement that takes it back."""
        return f"REVOKE {self.privilege} ON {self.target} FROM {self.role};"


class Rights(NamedTuple):
    """What ``headrace publisher grants`` prints. ``notes``: SQL comments, what no GRANT gives or what is useful besides.

    ``when``: from when on the agent's and the application's can be granted.
    """

    grants: Sequence[Grant]
    notes: Sequence[str]
    when: str


def merge(grants: Iterable[Grant]) -> list[str]:
    """Return the statements of ``grants``, one for each target and role, in their order."""
    rights: dict[tuple[str, str], list[str]] = {}
    for one in grants:
        rights.setdefault((one.target, one.role), []).append(one.privilege)
    return [
        f"GRANT {', '.join(privileges)} ON {target} TO {role};"
        for (target, role), privileges in rights.items()
    ]
