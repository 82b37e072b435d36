"""Whether journalctl may have left out entries between two that it gave out.

It doesn't say so itself: a file that journald vacuums under it, or makes and vacuums while its output is
stuck, is passed over in silence. But one number counts all entries of a host, and the oldest files go first.
So nothing behind entry N is gone as long as the oldest file begins at N + 1 or before: looked at after an
entry came, that holds for the time it was read as well.

Of an idle unit N would stay behind until every old file is gone. So who has the newest entry of the unit
stands at the newest entry of all.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from .journal_entries import Entry, cursor_seq, cursor_series
from .journal_files import SYSTEM, Holdings, holdings


class Place(NamedTuple):
    series: str
    seq: int

    @classmethod
    def of(cls, entry: Entry) -> Optional[Place]:
        series, seq = cursor_series(entry["__CURSOR"]), cursor_seq(entry["__CURSOR"])
        return None if series is None or seq is None else cls(series, seq)


class Continuity:
    """Follows the entries that journalctl gives out, in their order. Made before journalctl is started."""

    def __init__(self) -> None:
        self._at: Optional[Place] = None  # the reader has everything up to here, or was told of a gap
        self._held: Optional[Holdings] = None  # seen after the entries of this batch came
        self._known: Dict[Tuple[str, str], int] = dict(holdings().heads)  # when first seen
        self._resumed: Optional[Place] = None  # where an earlier reader stood

    def new_batch(self) -> None:
        """What was seen of the files before says nothing about the entries that come now."""
        self._held = None

    def follows(self, entry: Entry, resumed: bool = False) -> bool:
        """Whether nothing between the entry before and this one can have been left out.

        `resumed`: an earlier reader had this one.
        """
        place = Place.of(entry)
        if place is None:
            return True
        at, self._at = self._at, self._later(place)
        if at is None:
            self._resumed = place if resumed else None
            return True
        return place in (at, Place(at.series, at.seq + 1)) or not self._gone_behind(at)

    def caught_up(self, before: Holdings) -> bool:
        """The unit's newest entry is the reader's, of all that the files held at `before`. False if some were gone."""
        if self._at is None:
            return True
        self.new_batch()
        whole = not self._gone_behind(self._at)
        self._at = self._later(Place(self._at.series, before.tails.get(self._at.series, 0)))
        return whole

    def _later(self, place: Place) -> Place:
        return max(self._at, place) if self._at and self._at.series == place.series else place

    def _gone_behind(self, at: Place) -> bool:
        held = self._held = self._held or holdings()
        for key, head in held.heads.items():
            self._known.setdefault(key, 0 if key[1] == SYSTEM else head)  # a series that was begun meanwhile
        if not held.heads:  # files that can't be read prove nothing
            return False
        system = (at.series, SYSTEM)
        if system not in held.heads:
            return system in self._known or at == self._resumed
        # What went before this reader began is nothing that it missed, and a person's files may begin late for no
        # other reason than a first login.
        return any(
            head > at.seq + 1 and (self._known[key] != head or (key == system and at == self._resumed))
            for key, head in held.heads.items()
            if key[0] == at.series
        )
