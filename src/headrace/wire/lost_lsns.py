"""What rebuilding a server from a backup has lost: in the journal, in answers about feeds, and in an archive's manifests."""

from __future__ import annotations

import msgspec


class LostLsns(msgspec.Struct, frozen=True, rename="kebab"):
    """LSNs above ``after`` and below ``before``: what had them was lost, or left out, when the journal was rebuilt."""

    after: str
    before: str
