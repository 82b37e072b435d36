"""A service on a host for whoever looks at it: with its profile, or with nothing but the unit's name."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ddtool.deploy import crashes
from ddtool.deploy.session import Session
from ddtool.errors import UsageError
from ddtool.profile import Profile
from ddtool.transport.agent import Agent

if TYPE_CHECKING:
    from ddtool.crash.history import Crash

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9:_.\\@-]*")  # systemd's own characters
SUFFIX = ".service"

Json = dict[str, Any]


class Viewing(Session):
    """It changes nothing on the host. Without a unit it is the only one deployed there."""

    def __init__(self, host: str, unit: str | None, profile: Profile | None) -> None:
        self._unit = unit and unit_name(unit)
        super().__init__(host)
        self.profile = profile

    @cached_property
    def unit(self) -> str:
        """Raises UsageError, with their names, when none was named and the host has several, or none."""
        return self._unit or the_only_one(self.host, self.agent.call("services"))

    def status(self) -> Json:
        return status(self.agent, self.unit, self.profile)

    def situation(self) -> Json:
        """What ddtool.deploy.explain tells the reason from: `ddtool.situation/1` with `crash` as in `status`."""
        return _with_crash("situation", self.agent, self.unit, self.profile)

    def diagnostics(self) -> Json:
        """The agent's `diag.state`, of the profile's environment, else of that of the release that is current.

        Raises UsageError for a unit that ddtool has not deployed: nothing says which environment is meant then.
        """
        if self.profile:
            venv = self.profile.engine.venv
            state: Json | None = self.agent.call("diag.state", venv=venv, unit=self.unit)
        else:
            state = self.agent.call("status", deadline_s=60.0, unit_name=self.unit)["diagnostics"]
        if state is None:
            raise UsageError(
                f"{self.host} has no release of {self.unit}, which would say where its SGLang is installed",
                hint=f"name a profile of it: -p PROFILE --host {self.host}",
            )
        return state

    def last_crash(self, invocation: str | None = None) -> Crash | None:
        """The last crash, or that of one run, that the host has evidence of."""
        from ddtool.crash import history

        return history.last(self.agent, self.unit, self.profile, invocation)

    def releases(self) -> list[Json]:
        listed: list[Json] = self.agent.call("releases", unit_name=self.unit)
        return listed

    def contents(self, *names: str) -> list[Json]:
        found: list[Json] = self.agent.call("releases.contents", unit_name=self.unit, names=list(names))
        return found


def status(agent: Agent, unit: str, profile: Profile | None) -> Json:
    """The host's answer, with the last crash's verdict as `crash`."""
    return _with_crash("status", agent, unit, profile)


def _with_crash(op: str, agent: Agent, unit: str, profile: Profile | None) -> Json:
    venv = profile.engine.venv if profile else None
    answer: Json = agent.call(op, deadline_s=60.0, unit_name=unit, venv=venv)
    return {**answer, "crash": crashes.last_of_status(agent, unit, profile, answer)}


def unit_name(text: str) -> str:
    """A service's name without its suffix. UsageError for what is none, such as an option or a path."""
    name = text[: -len(SUFFIX)] if text.endswith(SUFFIX) else text
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{text!r} is not the name of a unit", hint="ddtool status --host HOST lists ddtool's"
        )
    return name


def the_only_one(host: str, services: list[Json]) -> str:
    if len(services) == 1:
        return str(services[0]["unit"])
    if not services:
        raise UsageError(f"{host} has no service of ddtool", hint=f"ddtool deploy PROFILE --host {host}")
    raise UsageError(
        f"{host} has {len(services)} services of ddtool",
        why="\n".join(f"{item['unit']}: {item['active']}, profile {item['profile']}" for item in services),
        hint=f"say which: --unit {services[0]['unit']}",
    )
