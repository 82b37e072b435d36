"""Journal entries as journalctl prints them, for tests that need no journal."""

from __future__ import annotations

from typing import Any

UNIT = "quirks.service"


def entry(number: int, message: Any = "text", boot: str = "b1", **fields: Any) -> dict[str, Any]:
    return {
        "__CURSOR": f"s=5;i={number:x};b={boot};m=1;t=2;x=3",
        "__REALTIME_TIMESTAMP": "1764442862000000",
        "_BOOT_ID": boot,
        "_PID": "7000001",
        "_SYSTEMD_UNIT": UNIT,
        "_SYSTEMD_INVOCATION_ID": "run1",
        "_STREAM_ID": "out",
        "_TRANSPORT": "stdout",
        "PRIORITY": "6",
        "MESSAGE": message,
        **fields,
    }
