def _ddtool_mini_copy():
    import json
    import os
    import sys
    from pathlib import Path

    def emit(event, **fields):
        line = {
            "patch": "@DDTOOL_PATCH@",
            "sha": "@DDTOOL_SHA@",
            "event": event,
            "worker": None,
            "rank": None,
        }
        sys.stderr.write("ddtool-diag/1 " + json.dumps({**line, "pid": os.getpid(), **fields}) + "\n")
        sys.stderr.flush()

    def check(dsts, srcs):
        if not said:
            said.append(True)
            prove(reached=True)
            emit("reached", file="@DDTOOL_FILE@")
        for index, src in enumerate(srcs):
            if src is None:
                emit("none", index=index, side="src", group_size=len(srcs))

    def prove(reached):
        unit = os.environ.get("DDTOOL_UNIT")
        if not unit:
            return
        start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        path = Path(os.environ.get("DDTOOL_RUN", "/run/ddtool")) / unit / f"{os.getpid()}-{start}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        proof = (
            json.loads(path.read_text())
            if path.exists()
            else {"patches": [], "pid": os.getpid(), "start": start}
        )
        proof["patches"] = [item for item in proof["patches"] if item["name"] != "@DDTOOL_PATCH@"]
        about = {"name": "@DDTOOL_PATCH@", "sha": "@DDTOOL_SHA@", "file": "@DDTOOL_FILE@"}
        proof["patches"].append({**about, "reached": reached})
        path.write_text(json.dumps(proof))

    said = []
    prove(reached=False)
    emit("loaded", file="@DDTOOL_FILE@")
    return check


_ddtool_mini_copy = _ddtool_mini_copy()
