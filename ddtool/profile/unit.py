"""Profile → the systemd unit of its service. Pure."""

from __future__ import annotations

from ddtool.agent.names import HEADER
from ddtool.profile import systemd
from ddtool.profile.launch import RELEASE, argv, public_environment
from ddtool.profile.schema import Profile

STATE = "/var/lib/ddtool"
RESTART_DELAY_S = 10
RESTART_LIMIT = 3


def unit_text(profile: Profile, release_dir_placeholder: str = RELEASE, state: str = STATE) -> str:
    """The unit file. `release_dir_placeholder` is the release's folder, or a mark that the host replaces.

    ValueError for a value that no unit file can carry.
    """
    release, service = release_dir_placeholder, profile.service
    title = systemd.text(f"SGLang {profile.name} ({profile.model.name})")
    start = systemd.command(argv(profile, release))
    evidence = systemd.command(["/usr/bin/python3", "-I", f"{release}/agent.pyz", "evidence", service.unit])
    environment = public_environment(profile, release)
    lines = [
        f"{HEADER}; release {release}",
        "# Changes made here are reported as drift. Use a profile, or a drop-in of your own.",
        "",
        "[Unit]",
        f"Description={title}, run by ddtool",
        "After=network-online.target",
        "Wants=network-online.target",
        "# While a change is open some files are new and some old: nobody may start the service then.",
        f"ConditionPathExists=!{systemd.path(state)}/txn.open",
        "# Three failed starts in a row, each as slow as allowed, end in `failed` instead of a loop.",
        f"StartLimitBurst={RESTART_LIMIT}",
        f"StartLimitIntervalSec={_limit_window_s(profile)}",
        "",
        "[Service]",
        "# Bounds the exec only; whether the server ever answers is the health gate's question.",
        "Type=exec",
        "TimeoutStartSec=90",
        f"WorkingDirectory={systemd.path(release)}",
        f"ExecStart={start}",
        "# Before the restart that would overwrite what a crash left behind.",
        f"ExecStopPost=-{evidence}",
        *(f"Environment={systemd.assignment(name, value)}" for name, value in sorted(environment.items())),
        "# Secrets: readable by root only, and not shown by `systemctl show`.",
        f"EnvironmentFile={systemd.path(release)}/env",
        "Restart=on-failure",
        f"RestartSec={RESTART_DELAY_S}",
        "# The server ends its own ranks; what remains after the deadline is killed with its group.",
        "KillMode=mixed",
        f"TimeoutStopSec={service.deadlines.stop_s}",
        "LimitNOFILE=1048576",
        "LimitMEMLOCK=infinity",
        "TasksMax=infinity",
        "StandardOutput=journal",
        "StandardError=journal",
        f"SyslogIdentifier={service.unit}",
        "# 0 would mean journald's default, and lose most of a traceback that eight ranks print at once.",
        "LogRateLimitIntervalSec=1us",
        "LogRateLimitBurst=4000000000",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _limit_window_s(profile: Profile) -> int:
    """Long enough that all attempts fall into it, however late each fails."""
    deadlines = profile.service.deadlines
    return RESTART_LIMIT * (deadlines.start_s + deadlines.stop_s + RESTART_DELAY_S) + 60
