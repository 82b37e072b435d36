"""One record of a host's journal (shared format `ddtool.record/1`), or a gap where records are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SCHEMA = "ddtool.record/1"


@dataclass(frozen=True)
class Gap:
    """Records between two cursors are missing; `end` is None while nothing has come after them."""

    start: str | None
    end: str | None
    reason: str  # vacuum, boot, suppression or unknown


@dataclass(frozen=True)
class Record:
    """`seq` orders records within a boot. `unix_us` is the host's wall clock, for display only."""

    boot: str | None
    seq: int | None
    cursor: str | None
    unix_us: int | None
    source: str | None  # unit, pid1 or kernel; None for a gap
    pid: int | None
    rank: int | None
    level: str | None  # debug, info, warning, error, critical; None when the line claims none
    text: str
    gap: Gap | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Record:
        """Raises KeyError for a missing field, ValueError for another schema."""
        if data["schema"] != SCHEMA:
            raise ValueError(f"a record of schema {data['schema']!r}; this ddtool reads {SCHEMA}")
        gap = data.get("gap")
        return cls(
            boot=data["boot"],
            seq=data["seq"],
            cursor=data["cursor"],
            unix_us=data["unix_us"],
            source=data["source"],
            pid=data["pid"],
            rank=data["rank"],
            level=data["level"],
            text=data["text"],
            gap=Gap(gap["from"], gap["to"], gap["reason"]) if gap else None,
        )

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "schema": SCHEMA,
            "boot": self.boot,
            "seq": self.seq,
            "cursor": self.cursor,
            "unix_us": self.unix_us,
            "source": self.source,
            "pid": self.pid,
            "rank": self.rank,
            "level": self.level,
            "text": self.text,
        }
        if self.gap:
            data["gap"] = {"from": self.gap.start, "to": self.gap.end, "reason": self.gap.reason}
        return data
