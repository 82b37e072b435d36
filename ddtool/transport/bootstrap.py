"""The agent's zipapp, and the one command line that starts it on a host.

A loader of a few lines travels in the command itself. It says what is there, receives the zipapp if the host has
no copy with that hash, and runs it: from the state folder when it is installed there, else from memory, so that a
verb that only reads leaves no file behind, and a /tmp that is mounted noexec plays no part. It goes base64 through
`sh -c`, in words between plain single quotes: the login shell may be fish, csh or another that quotes in its own way.
"""

from __future__ import annotations

import base64
import hashlib
import io
import shlex
import zlib
from functools import cache
from pathlib import Path

MAGIC = "ddtool-agent/1"

LOADER = r"""
import hashlib, json, os, runpy, sys
state, run, sha = sys.argv[3], sys.argv[5], sys.argv.pop()
path = os.path.join(state, "agent", sha + ".pyz")
os.umask(0o077)
def say(**words):
    os.write(1, ("\nddtool-agent/1 " + json.dumps(words) + "\n").encode())
def own(path):
    stat = os.stat(path)
    return stat.st_uid == os.geteuid() and not stat.st_mode & 0o022
def trusted():
    try:
        with open(path, "rb") as file:
            whole = hashlib.sha256(file.read()).hexdigest() == sha
        return whole and own(path) and own(os.path.dirname(path)) and own(state)
    except OSError:
        return False
def memory():
    for flags in (8, 0):  # MFD_NOEXEC_SEAL: hardened kernels refuse to go without, old ones do not know it
        try:
            return os.memfd_create("ddtool-agent", flags)
        except (AttributeError, OSError):
            pass
    import tempfile
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
have = trusted()
say(have=have, python=list(sys.version_info[:3]), uid=os.geteuid())
if sys.version_info < (3, 8):
    sys.exit(1)
if not have:
    data = b""
    size = None
    while size is None or len(data) < size:
        part = os.read(0, 65536 if size is None else size - len(data))
        if not part:
            sys.exit(1)
        data += part
        if size is None and len(data) >= 8:
            size, data = int.from_bytes(data[:8], "big"), data[8:]
    import zlib
    data = zlib.decompress(data)
    if hashlib.sha256(data).hexdigest() != sha:
        say(error="the agent arrived damaged")
        sys.exit(1)
    fd = memory()
    os.write(fd, data)
    path = "/proc/self/fd/%d" % fd
    say(have=True)
else:
    try:  # compiled for this Python when it was installed here: half the time of a short request
        compiled = path[:-4] + "." + sys.implementation.cache_tag + ".pyz"
        path = compiled if own(compiled) else path
    except OSError:
        pass
runpy.run_path(path, run_name="__main__")  # in this process: another one would cost a Python's start
"""


@cache
def agent_zipapp() -> bytes:
    """The agent as a zipapp, the same bytes for the same source: its hash is its version.

    Not compressed, since each command needs the hash, and few have to send the bytes.
    """
    import zipfile

    package = Path(__file__).parent.parent
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:

        def add(name: str, data: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)

        add("__main__.py", b"import sys\nfrom ddtool.agent.__main__ import main\nsys.exit(main())\n")
        add("ddtool/__init__.py", b"")
        for path in sorted((package / "agent").rglob("*.py")):
            add(f"ddtool/{path.relative_to(package).as_posix()}", path.read_bytes())
    return buffer.getvalue()


def parcel(zipapp: bytes) -> bytes:
    """What the loader reads where there is no copy: 8 bytes of length, big-endian, and the zipapp compressed."""
    packed = zlib.compress(zipapp)
    return len(packed).to_bytes(8, "big") + packed


def start_command(sha: str, state: str, run: str, *, become: bool) -> str:
    """The command line for the host's login shell. With `become` a login that is not root goes through `sudo -n`."""
    encoded = base64.b64encode(LOADER.encode()).decode()
    loader = f'import base64;exec(base64.b64decode("{encoded}"))'
    argv = f"serve --state {shlex.quote(state)} --run {shlex.quote(run)} {sha}"
    # -S: the agent needs the standard library only, and whatever a host's .pth files load takes time at each start.
    python = f'exec {{}}python3 -I -S -c "$0" {argv}'
    missing = 'command -v python3 >/dev/null || { echo "ddtool: no python3 on this host" >&2; exit 127; }; '
    if become:
        # sudo's refusals are recognised by their English words.
        sudo = f"export LC_ALL=C; {python.format('sudo -n -- ')}"
        script = f'{missing}if [ "$(id -u)" = 0 ]; then {python.format("")}; else {sudo}; fi'
    else:
        script = missing + python.format("")
    return f"sh -c {shlex.quote(script)} {shlex.quote(loader)}"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
