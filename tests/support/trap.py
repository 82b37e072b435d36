"""Inside the doctored agent: counts its acts on the host, and kills or holds its process at the one that was ordered.

An act is what changes something: opening a file for writing, renaming, linking, removing, …, starting a program,
and each write and flush of a descriptor. The process dies before the act; a write is cut in half. One that is held
stands before the act until HELD is removed, so that something may happen to the host meanwhile.
CLOCK, while it is there, has the seconds by which the agent's wall clock is wrong.
Standard library only: this file goes into the agent's zipapp (see doctored.py) and runs before its first line.
"""

import json
import os
import signal
import sys
import time

ORDER = "/run/kill-at.json"
FIRED = "/run/killed-at.json"
ACTS = "/run/acts.jsonl"
HELD = "/run/held"
CLOCK = "/run/clock-step"

CHANGES = {
    *(
        "os.rename",
        "os.link",
        "os.symlink",
        "os.remove",
        "os.mkdir",
        "os.rmdir",
        "os.utime",
        "os.chmod",
        "os.chown",
    ),
    *("os.truncate", "os.setxattr"),
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
LOOKS = {"show", "status", "is-active"}
real_write, real_pwrite, real_fsync = os.write, os.pwrite, os.fsync


class Trap:
    def __init__(self, verb, at, within=None, hold=False, looks=False):
        self.verb, self.at, self.within, self.hold, self.looks = verb, at, within, hold, looks
        self.count, self.off = 0, False

    def reached(self, act):
        """Count an act. True for the one to die at; when there is none, every act is written down."""
        if self.off or (self.within and self.within not in agent_functions()):
            return False
        self.count += 1
        if not self.at:
            self.note(ACTS, "a", act)
        return self.count == self.at

    def spring(self, act):
        self.note(FIRED, "w", act)
        if not self.hold:
            os.kill(os.getpid(), signal.SIGKILL)
        self.off = True  # one point a process
        open(HELD, "w").close()
        while os.path.exists(HELD):
            time.sleep(0.02)

    def note(self, path, mode, act):
        self.off = True
        with open(path, mode) as file:
            line = {"verb": self.verb, "at": self.count, "act": act, "in": agent_functions()}
            file.write(json.dumps(line) + "\n")
        self.off = False

    def audit(self, event, args):
        if not self.off and (is_act(event, args) or (self.looks and event == "subprocess.Popen")):
            act = " ".join([event, *(str(arg) for arg in args[:2])])
            if self.reached(act):
                self.spring(act)

    def write(self, fd, data):
        if self.reached("write"):
            if not self.hold:
                real_write(fd, bytes(data)[: len(data) // 2])
            self.spring(f"half of a write of {len(data)} bytes")
        return real_write(fd, data)

    def pwrite(self, fd, data, offset):
        if self.reached("pwrite"):
            if not self.hold:
                real_pwrite(fd, bytes(data)[: len(data) // 2], offset)
            self.spring(f"half of a pwrite of {len(data)} bytes")
        return real_pwrite(fd, data, offset)

    def fsync(self, fd):
        if self.reached("fsync"):
            self.spring("fsync")
        real_fsync(fd)


def agent_functions():
    """Names of the agent's functions on the stack, innermost first."""
    frame, names = sys._getframe(1), []
    while frame:
        if "/ddtool/agent/" in frame.f_code.co_filename and frame.f_code.co_filename != __file__:
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


def is_act(event, args):
    if event == "open":
        act = isinstance(args[2], int) and bool(args[2] & WRITES) and not str(args[0]).startswith("/dev/")
    elif event == "subprocess.Popen":
        command = list(args[1])
        act = command[0] != "journalctl" and not (command[0] == "systemctl" and command[1] in LOOKS)
    else:
        act = event in CHANGES
    # Proofs of dead processes are no state, and their number grows with every start.
    return act and not str(args[0]).startswith("/run/ddtool/")


def wrong_clock():
    """time.time and what is made of it without a moment given, as `CLOCK` says."""
    real_time, real_gmtime, real_localtime = time.time, time.gmtime, time.localtime

    def now():
        try:
            with open(CLOCK) as file:
                return real_time() + float(file.read())
        except FileNotFoundError:
            return real_time()

    time.time = now
    time.gmtime = lambda moment=None: real_gmtime(now() if moment is None else moment)
    time.localtime = lambda moment=None: real_localtime(now() if moment is None else moment)


def install():
    wrong_clock()
    try:
        with open(ORDER) as file:
            order = json.load(file)
    except FileNotFoundError:
        return
    if order["verb"] not in sys.argv[1:2]:
        return
    os.unlink(ORDER)  # so that only one process dies
    trap = Trap(**order)
    sys.addaudithook(trap.audit)
    os.fsync = trap.fsync
    if trap.verb == "txn":  # a serving agent's writes are its answers
        os.write, os.pwrite = trap.write, trap.pwrite
