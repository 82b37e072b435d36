"""A benchmark as it goes: on a terminal one live line, elsewhere a line a pass."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ddtool.cli import output, progress

if TYPE_CHECKING:
    from rich.status import Status
    from typing_extensions import Self

    from ddtool.bench.progress import Progress

Event = dict[str, Any]


class Watch:
    """Takes the events of a run. The transaction's own are shown as for every other command."""

    def __init__(self, standing: Progress) -> None:
        self._standing = standing
        self._live: Status | None = None
        self._begun: dict[str, float] = {}
        self._over: set[str] = set()
        self._heard = 0

    def __enter__(self) -> Self:
        console = output.stderr()
        if console.is_terminal:
            self._live = console.status("starting", refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def again(self) -> Callable[[Event], None]:
        """For a transaction that is followed from its beginning a second time: what was heard is not said again."""
        known = self._heard

        def event(event: Event) -> None:
            nonlocal known
            known -= 1
            if known < 0:
                self.event(event)

        return event

    def event(self, event: Event) -> None:
        self._heard += 1
        if event["event"] == "pass":
            self._pass(event)
            return
        if event["event"] == "healthy":
            self._standing.started(event["seconds"])
        progress.show(event)

    def _pass(self, event: Event) -> None:
        """`done` and `of` are requests of this pass."""
        ident, at = event["pass"], event.get("elapsed_s", 0.0)
        self._begun.setdefault(ident, at)
        over = event["done"] >= event["of"]
        if over and ident not in self._over:
            self._over.add(ident)
            self._standing.ended(ident, event.get("seconds") or max(0.1, at - self._begun[ident]))
            if self._live is None:
                output.words(self._line(event))
        if self._live is not None:
            self._live.update(output.safe(self._line(event)))

    def _line(self, event: Event) -> str:
        left = self._standing.left_s
        wait = f", {output.minutes(left)} left" if left else ""
        speed = f", {event['tok_s']:.1f} tok/s" if event.get("tok_s") else ""
        failed = f", {event['errors']} failed" if event.get("errors") else ""
        over = event["done"] >= event["of"]
        within = "" if over else f" ({event['done']} of {event['of']} answers)"
        # Of a run that was begun elsewhere and has no samples yet, nobody here knows the plan.
        of = f" {self._standing.done + (not over)} of {self._standing.of}" if self._standing.of else ""
        return f"pass{of}: {event['pass']}{within}{speed}{failed}{wait}"
