"""What becomes of a hand-made unit's settings: covered by ddtool's own unit, or not carried over, and why. Pure."""

from __future__ import annotations

import re

from ddtool.profile.unit_text import Setting

# The profile has them
READ = ("ExecStart", "Environment", "EnvironmentFile", "WorkingDirectory", "TimeoutStopSec")
COVERED = {
    "Type": "ddtool's unit is Type=exec; whether the server answers is the health gate's question",
    "Restart": "ddtool's unit restarts after a failure, three times in a row at most",
    "RestartSec": "ddtool's unit waits 10 s",
    "StartLimitBurst": "ddtool's unit has limits of its own",
    "StartLimitInterval": "ddtool's unit has limits of its own",
    "StartLimitIntervalSec": "ddtool's unit has limits of its own",
    "TimeoutStartSec": "bounds no load; service.deadlines.start_s does",
    "TimeoutSec": "service.deadlines has both",
    "KillMode": "ddtool's unit ends the server first and then its group",
    "KillSignal": "ddtool's unit sends SIGTERM",
    "SendSIGKILL": "ddtool's unit kills what outlives service.deadlines.stop_s",
    "SyslogIdentifier": "ddtool's unit logs under its own name",
    "Description": "ddtool's unit has its own",
    "Documentation": "ddtool's unit has none",
    "LimitMEMLOCK": "ddtool's unit sets infinity",
    "TasksMax": "ddtool's unit sets infinity",
    "LogRateLimitIntervalSec": "ddtool's unit loses no line",
    "LogRateLimitBurst": "ddtool's unit loses no line",
    "GuessMainPID": "ddtool's unit has one main process",
    "RemainAfterExit": "ddtool's unit ends with its server",
    "PIDFile": "ddtool's unit does not fork",
    "WantedBy": "ddtool enables its unit for multi-user.target",
}
NOT_CARRIED = {
    "ExecStartPre": "a profile has no commands before the server",
    "ExecStartPost": "a profile has no commands after the start; the health gate waits for an answer",
    "ExecStop": "ddtool's unit stops the server by SIGTERM",
    "ExecStopPost": "ddtool's unit collects evidence there",
    "ExecReload": "the server cannot reload",
    "ExecCondition": "a profile has no conditions",
    "User": "ddtool's services run as root: what this user could not read or write, root can, and new files are root's",
    "Group": "ddtool's services run as root",
    "SupplementaryGroups": "ddtool's services run as root",
    "DynamicUser": "ddtool's services run as root",
    "StandardOutput": "ddtool's unit logs to the journal: ddtool logs",
    "StandardError": "ddtool's unit logs to the journal: ddtool logs",
    "PassEnvironment": "its variables are the manager's; put them into env",
    "UnsetEnvironment": "a profile sets variables and unsets none",
    "Alias": "the other name goes on to work as long as its link is there, and `remove --restore-unit` keeps it",
    "LoadCredential": "secrets are ${env:NAME} in a profile",
}
KEEP = "a profile has no key for it; keep it in a drop-in: systemctl edit"
OUR_FILES = 1048576


def fate(setting: Setting) -> tuple[bool, str] | None:
    """(covered, why); None for what the profile has read."""
    name, value = setting.name, setting.value
    if name in READ:
        return None
    if name in ("User", "Group") and value in ("root", "0"):
        return True, "ddtool's services run as root"
    if name in ("StandardOutput", "StandardError") and value in ("journal", "inherit", "journal+console"):
        return True, "ddtool's unit logs to the journal"
    if name in ("After", "Wants") and set(value.split()) <= {"network.target", "network-online.target"}:
        return True, "ddtool's unit starts after network-online.target"
    highest = value.rpartition(":")[2]
    if name == "LimitNOFILE" and highest.isdigit() and int(highest) <= OUR_FILES:
        return True, f"ddtool's unit sets {OUR_FILES}"
    if name == "WantedBy" and value != "multi-user.target":
        return False, "ddtool enables its unit for multi-user.target"
    if name in COVERED:
        return True, COVERED[name]
    return False, NOT_CARRIED.get(name, KEEP)


_SPAN = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600),
}


def seconds(value: str) -> int | None:
    """A time span of systemd in whole seconds; None for `infinity`, a part of one second, and what is no span."""
    parts = re.findall(r"([0-9]+)\s*([a-z]*)", value)
    if not re.fullmatch(r"(\s*[0-9]+\s*[a-z]*)+", value) or any(unit not in _SPAN for _, unit in parts):
        return None
    return sum(int(number) * _SPAN[unit] for number, unit in parts) or None
