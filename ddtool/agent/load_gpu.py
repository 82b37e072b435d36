"""What the cards do while a pass runs: memory, power, and who else uses them. Nothing where nvidia-smi is not."""

from __future__ import annotations

import shutil
import subprocess
import threading
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Set, Type

from . import clean

EVERY_MS = 500
QUERY = "--query-gpu=uuid,memory.used,power.draw"
APPS = "--query-compute-apps=gpu_uuid,pid,process_name"

Json = Dict[str, Any]


class _Card:
    def __init__(self) -> None:
        self.memory_mib = 0.0
        self.watts = 0.0
        self.readings = 0


class Sampler:
    """While it is open one nvidia-smi reports twice a second: starting one takes longer than a short pass.

    `own`: the pids of the service that is measured.
    """

    def __init__(self, own: Callable[[], Set[int]]) -> None:
        self._own = own
        self._lock = threading.Lock()
        self._cards: Dict[str, _Card] = {}
        self._apps: List[List[str]] = []
        self._smi: Optional[subprocess.Popen[str]] = None

    def __enter__(self) -> Sampler:
        if shutil.which("nvidia-smi"):
            command = ["nvidia-smi", QUERY, "--format=csv,noheader,nounits", f"--loop-ms={EVERY_MS}"]
            self._smi = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            threading.Thread(target=self._read, args=(self._smi,), daemon=True).start()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], tb: Optional[TracebackType]
    ) -> None:
        if self._smi is not None:
            self._smi.kill()
            self._smi.wait()

    def begin(self) -> None:
        """What was seen before is none of this pass."""
        if self._smi is None:
            return
        self._apps = clean.nvidia_smi(APPS)
        with self._lock:
            self._cards = {}

    def seen(self) -> Optional[Json]:
        """Since `begin`, of the service's cards: `memory_mib` of the fullest at its fullest, `power_w` of all of them
        on average, `others`: `pid name` of each other process there, at the begin or now.

        None when there is no reading. Where the driver does not know the service's pids (it runs in a container) the
        cards are all there are, and `others` is null.
        """
        if self._smi is None:
            return None
        apps = [row for row in [*self._apps, *clean.nvidia_smi(APPS)] if len(row) == 3 and row[1].isdigit()]
        own = self._own()
        of_service = {row[0] for row in apps if int(row[1]) in own}
        with self._lock:
            cards = [card for uuid, card in self._cards.items() if not of_service or uuid in of_service]
        if not cards:
            return None
        others = {f"{row[1]} {row[2]}" for row in apps if row[0] in of_service and int(row[1]) not in own}
        return {
            "memory_mib": round(max(card.memory_mib for card in cards)),
            "power_w": round(sum(card.watts / card.readings for card in cards), 1),
            "others": sorted(others) if of_service else None,
        }

    def _read(self, smi: subprocess.Popen[str]) -> None:
        assert smi.stdout
        for line in smi.stdout:
            uuid, _, rest = line.partition(",")
            memory, _, watts = rest.partition(",")
            try:
                reading = float(memory), float(watts)
            except ValueError:  # "[N/A]", or words of the driver
                continue
            with self._lock:
                card = self._cards.setdefault(uuid.strip(), _Card())
                card.memory_mib = max(card.memory_mib, reading[0])
                card.watts += reading[1]
                card.readings += 1
