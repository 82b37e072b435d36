"""What a check of a profile found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """`refuse`: it cannot work. `warn`: without effect, or unknown. `note`: worth knowing before a deploy."""

    level: Literal["refuse", "warn", "note"]
    key: str  # the profile's key it is about
    reason: str
    fix: str | None = None

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}" + (f"; {self.fix}" if self.fix else "")
