"""How the sandbox's root file system is configured, once, after its packages are in place."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

USER = "ubuntu"  # unprivileged, with sudo that asks for no password: what a rented GPU host gives

# What a container cannot do, or what would disturb a test in its middle.
MASKED = """
apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer logrotate.timer
man-db.timer motd-news.timer systemd-tmpfiles-clean.timer systemd-udevd.service systemd-udev-trigger.service
systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-modules-load.service
systemd-networkd.service systemd-networkd-wait-online.service systemd-resolved.service
systemd-timesyncd.service systemd-machine-id-commit.service systemd-firstboot.service
systemd-pcrphase.service systemd-pcrphase-sysinit.service systemd-binfmt.service
proc-sys-fs-binfmt_misc.automount sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount
sys-fs-fuse-connections.mount dev-hugepages.mount kmod-static-nodes.service getty.target
getty-static.service console-getty.service getty@tty1.service systemd-ask-password-console.path
systemd-ask-password-wall.path e2scrub_reap.service rc-local.service quotaon.service
""".split()  # noqa: SIM905 - one word a line would be 40 lines

_LINKS = {
    "default.target": "/lib/systemd/system/multi-user.target",
    "multi-user.target.wants/ssh.service": "/lib/systemd/system/ssh.service",
}

_FILES = {
    "fstab": "",
    "default/locale": "LANG=C.UTF-8\n",
    "ssh/sshd_config.d/sandbox.conf": """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
MaxStartups 100:30:200
MaxSessions 50
PrintMotd no
""",
    "systemd/journald.conf.d/sandbox.conf": """\
[Journal]
Storage=persistent
SystemMaxUse=64M
ReadKMsg=no
Audit=no
""",
}


def configure(root: Path) -> None:
    """Make the freshly built Debian at `root` a host that boots quickly and answers ssh by key only."""
    etc = root / "etc"
    shutil.rmtree(
        etc / "apt/sources.list.d", ignore_errors=True
    )  # it reaches no mirror, and needs to name none
    for name in ("apt/sources.list", "machine-id", "hostname", "resolv.conf", "motd"):
        (etc / name).unlink(missing_ok=True)
    for key in (etc / "ssh").glob("ssh_host_*"):
        key.unlink()
    _add_users(root)
    units = etc / "systemd/system"
    for unit in MASKED:
        _link(units / unit, "/dev/null")
    for name, target in _LINKS.items():
        _link(units / name, target)
    for name, text in _FILES.items():
        path = etc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "var/log/journal").mkdir(parents=True, exist_ok=True)  # makes the journal persistent


def _add_users(root: Path) -> None:
    _chroot(root, "useradd", "-m", "-s", "/bin/bash", USER)
    for user in (USER, "root"):
        _chroot(root, "usermod", "-p", "*", user)  # no password, yet not locked: sshd refuses locked accounts
    sudoers = root / "etc/sudoers.d/90-sandbox"
    sudoers.write_text(f"{USER} ALL=(ALL) NOPASSWD:ALL\n")
    sudoers.chmod(0o440)


def _chroot(root: Path, *command: str) -> None:
    subprocess.run(["chroot", str(root), *command], check=True, stdout=subprocess.DEVNULL)


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)
