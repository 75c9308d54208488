"""Equal values of many manifests, kept in memory once. For who reads all manifests of an archive. Pure.

Each manifest names every feed, and says of the server's feeds all that the one before said, but for their next ids.
"""

from __future__ import annotations

from msgspec.structs import replace

from headrace.wire.kwal_manifest import FeedRange, Manifest, RegisteredFeed


class Shared:
    """What was seen so far. Manifests are best given in LSN order: each is compared with the one before."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._registered: dict[int, RegisteredFeed] = {}
        """By region id: as the last manifest had it."""

    def manifest(self, manifest: Manifest) -> Manifest:
        """Return an equal manifest that holds as little as it can of its own."""
        return replace(
            manifest,
            feeds=tuple(map(self._range, manifest.feeds)),
            registry=tuple(map(self._feed, manifest.registry)),
        )

    def _range(self, one: FeedRange) -> FeedRange:
        return replace(one, feed=self._text(one.feed), incarnation=self._text(one.incarnation))

    def _feed(self, one: RegisteredFeed) -> RegisteredFeed:
        known = self._registered.get(one.region_id)
        if known == one:
            return known
        if known is None:
            known = one
        made = replace(
            one,
            feed=self._text(one.feed),
            tenant_id=self._text(one.tenant_id),
            mode=self._text(one.mode),
            owner=self._text(one.owner),
            incarnation=self._text(one.incarnation),
            settings=known.settings if known.settings == one.settings else one.settings,
            lost_lsns=known.lost_lsns if known.lost_lsns == one.lost_lsns else one.lost_lsns,
        )
        self._registered[one.region_id] = made
        return made

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text, text)
