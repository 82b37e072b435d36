"""One profile on one host: facts, plan and transactions, over one agent. What the commands of `ddtool.cli` call."""

from __future__ import annotations

import base64
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ddtool.deploy import apply as transactions
from ddtool.deploy import crashes, installs, operations, preflight, takeover, uploads, viewing
from ddtool.deploy.experiment import is_current, plan_experiment
from ddtool.deploy.measured import on_host
from ddtool.deploy.plan import Plan, check_owner, current_release, plan_deploy
from ddtool.deploy.release import Release, build_release
from ddtool.deploy.session import Session
from ddtool.deploy.toggle import compose_step, plan_toggle, toggle_request
from ddtool.diagnostics import consent
from ddtool.engine import engine_files
from ddtool.profile import Profile, resolve_secrets
from ddtool.profile.findings import Finding
from ddtool.profile.validate import require_valid

if TYPE_CHECKING:
    from ddtool.diagnostics.definition import Definition

Event = dict[str, Any]
OnEvent = Callable[[Event], None]


class Deployment(Session):
    """`facts` are read when first needed, and after a settle."""

    def __init__(self, profile: Profile, host: str) -> None:
        super().__init__(host)
        self.profile = profile
        self.unit = profile.service.unit
        self._facts: dict[str, Any] | None = None
        self._new_salt = secrets.token_hex(16)

    @property
    def state(self) -> str:
        return self.agent.host.state

    @property
    def facts(self) -> dict[str, Any]:
        if self._facts is None:
            self._facts = self.agent.call(
                "facts",
                deadline_s=60.0,
                unit_name=self.unit,
                venv=self.profile.engine.venv,
                model=self.profile.model.path,
                drafter=self.profile.drafter.path if self.profile.drafter else None,
                address=self.profile.service.bind,
                port=self.profile.service.port,
                managed=installs.asked_of_host(self.profile),
            )
        return self._facts

    @cached_property
    def wanted(self) -> installs.Wanted | None:
        """The environment of `engine.install: managed`. UsageError when its files are not on this machine."""
        return installs.wanted(self.profile)

    @property
    def target_facts(self) -> dict[str, Any]:
        """The facts with the environment that a deploy would use, in place of the one in force."""
        return installs.for_deploy(self.facts, self.wanted)

    @property
    def target(self) -> Profile:
        """The profile with that environment."""
        return self.profile.with_environment(self.wanted.path) if self.wanted else self.profile

    @cached_property
    def held(self) -> dict[str, int]:
        """sha256 → bytes on the host, of the wheels that an environment still to be made needs."""
        house = self.wanted.house if self.wanted and self.facts["install"]["incomplete"] else None
        return self.agent.call("wheels.held", shas=[wheel.sha256 for wheel in house.wheels]) if house else {}

    def checks(self) -> list[preflight.Check]:
        found = [preflight.Check("ssh", "ok", self.agent.host.where)]
        if self.wanted:
            from ddtool.deploy import install_checks

            found += install_checks.checks(self.wanted, self.facts, self.held)
        return [*found, *preflight.check_all(self.profile, self.target_facts, time.time())]

    def check_engine(self) -> preflight.Check:
        """Ask the host's SGLang whether ddtool's engine answers in it. It imports SGLang, so it takes a while."""
        files = {path: base64.b64encode(data).decode() for path, data in engine_files().items()}
        env = {name: value for name, value in self.profile.env.items() if isinstance(value, str)}
        answer = self.agent.call(
            "engine.check", deadline_s=180.0, venv=self.target.engine.venv, files=files, env=env
        )
        return preflight.engine_answers(answer)

    def settle(self, on_event: OnEvent) -> None:
        """Finish or undo what a killed transaction left, so that plans rest on a whole host."""
        if self._settled(self.facts, on_event):
            self._facts = None

    def _settled(self, found: dict[str, Any], on_event: OnEvent) -> bool:
        """Whether there was something. Then another agent is started: a `remove` that was finished has taken the file
        of the one that runs off the host, and modules that nobody has asked for yet with it."""
        settled = transactions.settle(self.agent, found, self.unit, on_event)
        if settled:
            self.reconnect()
        return settled

    def plan_deploy(self, *, take_over: bool = False, restart: bool = False) -> Plan:
        """Raises PreflightError when the host cannot run the profile, Drift when somebody's work is in the way.

        `restart` matters for a unit that is or was somebody else's, whose process goes on otherwise.
        """
        findings = self.require_runnable()
        release = self.build_release()
        profile, facts = self.target, self.target_facts
        given: dict[str, Any] = {"state": self.state, "salt": self.salt, "now_unix": time.time()}
        if take_over and takeover.is_foreign(facts):
            plan = takeover.plan_take_over(profile, release, facts, restart=restart, **given)
        elif takeover.waits(facts):
            given = {**given, "stay": take_over and not restart, "restart": restart}
            plan = takeover.plan_waiting(profile, release, facts, **given)
        else:
            plan = plan_deploy(profile, release, facts, take_over=take_over, **given)
        plan = installs.in_plan(plan, self.wanted, self.facts, self.held)
        return replace(plan, warnings=[*plan.warnings, *map(str, findings)])

    def require_runnable(self) -> list[Finding]:
        """What validation noted. Raises ProfileError, or PreflightError when the host cannot run the profile."""
        findings = require_valid(on_host(self.target, self.facts))
        preflight.require(self.checks(), self.host, self.profile.name)
        return findings

    @property
    def salt(self) -> str:
        """The host's, by which values of secrets are hashed; a new one where it has none yet."""
        return self.facts["salt"] or self._new_salt

    def build_release(self, profile: Profile | None = None) -> Release:
        """The release that the profile means on this host; or another profile of the same service, such as an arm."""
        wheel = self.wanted.identity if self.wanted else self.facts["venv"]["sglang"]["identity"]
        given = resolve_secrets(self.profile, os.environ)
        release = build_release(profile or self.target, given, self.salt, wheel)
        return installs.in_release(release, self.wanted)

    def plan_start(self) -> Plan:
        return operations.plan_start(self.unit, self.facts)

    def plan_stop(self) -> Plan:
        return operations.plan_stop(self.unit, self.facts)

    def plan_restart(self) -> Plan:
        if takeover.waits(self.facts):
            return takeover.plan_first_restart("restart", self.unit, self.facts, state=self.state)
        return operations.plan_restart(self.unit, self.facts)

    def plan_rollback(self, to: str | None) -> Plan:
        plan = operations.plan_rollback(self.unit, self.facts, to=to, state=self.state)
        return installs.in_rollback(plan, self.facts)

    def plan_remove(self, *, force: bool = False, restore_unit: bool | None = None) -> Plan:
        """`force`: foreign edits of patched files are overwritten too. Their copies go with everything else.

        `restore_unit`: whether a unit that was taken over is given back; UsageError when nobody said so.
        """
        if restore_unit is None:
            takeover.refuse_to_lose(self.unit, self.facts)
        restore = None
        if self.facts["diagnostics"]["patches"]:
            request = {"op": "restore", "venv": self.profile.engine.venv, "force": force}
            restore = compose_step("restore patched files", request, self.preview(request))
        plan = takeover.plan_give_back if restore_unit else operations.plan_remove
        return plan(self.unit, self.facts, state=self.state, restore=restore)

    def diagnostics(self) -> dict[str, Any]:
        """What is enabled in the environment and on disk, and what the unit's ranks have loaded of it."""
        state: dict[str, Any] = self.agent.call("diag.state", venv=self.profile.engine.venv, unit=self.unit)
        return state

    def preview(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a diagnostics request would do on the host; writes nothing."""
        answer: dict[str, Any] = self.agent.call("diag.preview", deadline_s=60.0, request=request)
        return answer

    def look(self, request: dict[str, Any], on_event: OnEvent | None) -> dict[str, Any]:
        """What the plan of a toggle rests on, in one round trip; after a settle, unless nothing may change."""
        found: dict[str, Any] = self.agent.call(
            "diag.look", deadline_s=60.0, request=request, unit_name=self.unit
        )
        if on_event and self._settled(found, on_event):
            return self.look(request, on_event)
        return found if found["preview"] else {**found, "preview": self.preview(request)}

    def plan_toggle(
        self,
        kind: str,
        request: dict[str, Any],
        *,
        restart: bool,
        also_affects: Sequence[str] = (),
        on_event: OnEvent | None = None,
    ) -> Plan:
        """With `on_event` a killed transaction is settled first.

        Raises UsageError for a name to disable that nobody knows, and when another unit than those named uses the
        same files.
        """
        found = self.look(request, on_event)
        enabled = [patch["name"] for patch in found["diagnostics"]["patches"]]
        consent.check_disable(request.get("disable", ()), enabled)
        request = consent.agreed(request, found["preview"], self.unit, also_affects)
        if restart:
            takeover.refuse_while_waiting(found, f"{kind} --restart")
        return plan_toggle(kind, self.unit, request, found["preview"], found, restart=restart)

    def plan_experiment(
        self,
        patch: Definition,
        *,
        asked: Sequence[dict[str, Any]],
        timeout_s: float,
        force: bool = False,
        also_affects: Sequence[str] = (),
    ) -> Plan:
        """The plan of `diag run`. A profile that is not what is deployed is checked as for a deploy."""
        takeover.refuse_while_waiting(self.facts, "diag run")
        installs.require_in_force(self.wanted, self.facts)
        request = toggle_request(
            self.profile.engine.venv, enable=[patch.to_json()], why="diag run", force=force
        )
        preview = self.preview(request)
        request = consent.agreed(request, preview, self.unit, also_affects)
        release = self.build_release()
        current = current_release(self.facts)
        check_owner(self.unit, self.facts["service"], current, self.state, take_over=False)
        if not (current and is_current(self.unit, release, current, self.facts, self.state)):
            self.require_runnable()
        return plan_experiment(
            self.profile,
            patch,
            release,
            self.facts,
            preview,
            request,
            asked=asked,
            timeout_s=timeout_s,
            state=self.state,
            run=self.agent.host.run,
            salt=self.salt,
            now_unix=time.time(),
        )

    def apply(self, plan: Plan, on_event: OnEvent, why: str | None = None) -> Event:
        """The transaction's result. Raises its error, after the host has undone it.

        Wheels are sent before it begins; VerificationFailed when one is not what its wheelhouse says.
        """
        if plan.uploads and self.wanted and self.wanted.house:
            uploads.send(self.wanted.house, plan.uploads, self.agent, self.reconnect, on_event)
        result = transactions.apply(self.agent, plan, on_event, why)
        crashes.tell(self.agent, self.unit, self.profile, result, on_event)
        transactions.raise_for(result)
        return result

    def attach(self, on_event: OnEvent) -> Event:
        result = transactions.attach(self.agent, on_event)
        crashes.tell(self.agent, self.unit, self.profile, result, on_event)
        transactions.raise_for(result)
        return result

    def status(self) -> dict[str, Any]:
        return viewing.status(self.agent, self.unit, self.profile)
