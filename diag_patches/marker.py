# --- ddtool: what every inserted diagnostic shares; put before its code when that calls `_ddtool_marker` ---
def _ddtool_marker(name, sha, file):
    """The patch's voice: emit(event, worker, rank, **fields) writes one marker line. Leaves the proof of load.

    emit.reached() belongs where the inserted code looks at what it is for: the first call in a process says so.
    """
    import json
    import os
    import sys
    from pathlib import Path

    def emit(event, worker=None, rank=None, **fields):
        """On stderr: at import, logging is not configured yet, and later its level may hide it."""
        line = {"patch": name, "sha": sha, "event": event, "worker": worker, "rank": rank, "pid": os.getpid()}
        try:
            sys.stderr.write("ddtool-diag/1 " + json.dumps({**line, **fields}, default=str) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):  # a service whose stderr is closed goes on
            return

    def who(runner):
        """(worker, rank) of a ModelRunner: its own attribute up to 0.5.15, `ps` up to 0.5.20, then a global."""
        worker = "draft" if runner.is_draft_worker else "target"
        for place in (runner, getattr(runner, "ps", None)):
            if getattr(place, "tp_rank", None) is not None:
                return worker, place.tp_rank
        try:
            return worker, sys.modules["sglang.srt.runtime_context"].get_parallel().tp_rank
        except Exception:  # noqa: BLE001  a rank that nobody can tell is null
            return worker, None

    def prove(ran):
        """/run/ddtool/UNIT/PID-STARTTIME.json, shared by all patched files of this process."""
        unit = os.environ.get("DDTOOL_UNIT")
        if not unit:
            return
        start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        folder = Path(os.environ.get("DDTOOL_RUN", "/run/ddtool")) / unit
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{start}.json"
        proof = {"patches": [], "engine": os.environ.get("DDTOOL_ENGINE"), "pid": os.getpid(), "start": start}
        if path.exists():
            proof.update(json.loads(path.read_text()))
        proof["patches"] = [item for item in proof["patches"] if (item["name"], item["file"]) != (name, file)]
        proof["patches"].append({"name": name, "sha": sha, "file": file, "reached": ran})
        aside = path.with_suffix(".tmp")
        aside.write_text(json.dumps(proof))
        aside.replace(path)

    def say(event):
        """A milestone of this file: in its proof and in the log."""
        try:
            prove(event == "reached")
        except Exception as error:  # noqa: BLE001  a diagnostic must not break the service; that it failed is said
            emit("unproven", why=f"{type(error).__name__}: {error}")
        emit(event, file=file)

    said = []

    def reached():
        if not said:
            said.append(True)
            say("reached")

    say("loaded")
    emit.who = who
    emit.reached = reached
    return emit
