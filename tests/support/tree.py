"""A host's disk as a comparable value: to show that a command wrote nothing, or left nothing."""

from __future__ import annotations

import json

from ddtool.sandbox import Sandbox, exec_inside

# Not ddtool's: logs, login records, systemd's and sshd's own runtime files.
IGNORED = ("/proc", "/sys", "/dev", "/run", "/tmp", "/var/log", "/var/lib/systemd", "/var/cache", "/var/tmp")
SCRIPT = """
import hashlib, json, os, sys
ignored = tuple(json.loads(sys.argv[1]))
found = {}
for folder, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if not os.path.join(folder, name).startswith(ignored)]
    for name in files + folders:
        path = os.path.join(folder, name)
        stat = os.lstat(path)
        kind = os.readlink(path) if os.path.islink(path) else ""
        size, mtime = (stat.st_size, stat.st_mtime_ns) if name in files else (0, 0)
        found[path] = [oct(stat.st_mode), stat.st_uid, stat.st_gid, size, mtime, kind]
        if name in files and not kind and path.startswith(("/etc", "/opt/mini", "/var/lib/ddtool", "/root")):
            found[path].append(hashlib.sha256(open(path, "rb").read()).hexdigest())
print(json.dumps(found))
"""


def snapshot(host: Sandbox) -> dict[str, list[object]]:
    """Path → mode, owner, group, size, mtime in ns, link target, and for managed places the bytes' hash."""
    done = exec_inside(host, ["python3", "-I", "-B", "-c", SCRIPT, json.dumps(IGNORED)])
    assert done.returncode == 0, done.stderr
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


def differences(before: dict[str, list[object]], after: dict[str, list[object]]) -> list[str]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def without_times(tree: dict[str, list[object]]) -> dict[str, list[object]]:
    """For comparing what is there, not when it was written."""
    return {path: [*about[:4], *about[5:]] for path, about in tree.items()}
