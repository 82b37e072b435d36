"""Result=oom-kill under cgroup v1.

systemd asks the kernel how often the OOM killer struck in a unit's cgroup by reading `memory.events`. cgroup
v1 has the same counter under another file name, `memory.oom_control`, so systemd there says Result=signal.
PID 1 of a sandbox runs with this one redirection. The kill is the kernel's, the verdict systemd's; no service
inherits the shim.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

PATH_INSIDE = "/usr/lib/ddtool-oom-shim.so"

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *renamed(const char *path, char *buffer, size_t size) {
    static const char root[] = "/sys/fs/cgroup/memory/";
    static const char asked[] = "/memory.events", there[] = "/memory.oom_control";
    size_t length = path ? strlen(path) : 0, tail = sizeof asked - 1;
    if (length <= tail || length - tail + sizeof there > size) return path;
    if (strncmp(path, root, sizeof root - 1) || strcmp(path + length - tail, asked)) return path;
    memcpy(buffer, path, length - tail);
    strcpy(buffer + length - tail, there);
    return buffer;
}

#define REDIRECT(name)                                                  \
    FILE *name(const char *path, const char *mode) {                    \
        static FILE *(*real)(const char *, const char *);               \
        char buffer[4096];                                              \
        if (!real) real = dlsym(RTLD_NEXT, #name);                      \
        return real(renamed(path, buffer, sizeof buffer), mode);        \
    }
REDIRECT(fopen)
REDIRECT(fopen64)
"""


def install(root: Path) -> bool:
    """Compile the shim into the file system at `root`. False when this machine has no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        return False
    target = root / PATH_INSIDE.lstrip("/")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "shim.c")
        source.write_text(SOURCE)
        command = [compiler, "-O2", "-shared", "-fPIC", "-s", "-o", str(target), str(source), "-ldl"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
