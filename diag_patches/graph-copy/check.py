# --- ddtool diagnostic @DDTOOL_PATCH@: `ddtool diag disable @DDTOOL_PATCH@` or `ddtool restore` removes it ---
def _ddtool_graph_copy():
    """The check that runs before every grouped copy; at import it also leaves the proof that it is loaded."""
    import json
    import os
    import sys
    from pathlib import Path

    name, sha, file = "@DDTOOL_PATCH@", "@DDTOOL_SHA@", "@DDTOOL_FILE@"

    def emit(event, worker=None, rank=None, **fields):
        """One marker line on stderr: at import, logging is not configured yet, and later its level may hide it."""
        line = {"patch": name, "sha": sha, "event": event, "worker": worker, "rank": rank, "pid": os.getpid()}
        try:
            sys.stderr.write("ddtool-diag/1 " + json.dumps({**line, **fields}) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):  # a service whose stderr is closed goes on
            return

    def check(dsts, srcs):
        """Silent on healthy input. Names are worked out only when something is wrong."""
        wrong = [
            (index, dst, src)
            for index, (dst, src) in enumerate(zip(dsts, srcs, strict=False))
            if dst is None or src is None or (dst.shape != src.shape and not broadcasts(src.shape, dst.shape))
        ]
        if wrong:
            report(sys._getframe(2), wrong, len(dsts))

    def broadcasts(source, target):
        pairs = zip(reversed(source), reversed(target), strict=False)
        return len(source) <= len(target) and all(one in (1, other) for one, other in pairs)

    def report(caller, wrong, group_size):
        buffers, batch = caller.f_locals.get("self"), caller.f_locals.get("forward_batch")
        runner = model_runner(caller)
        worker = None if runner is None else "draft" if runner.is_draft_worker else "target"
        rank = getattr(runner, "tp_rank", None)
        facts = {"group_size": group_size, "width": caller.f_locals.get("num_tokens_per_bs")}
        sentences = []
        for index, dst, src in wrong:
            field = field_name(buffers, batch, dst, src)
            if dst is None or src is None:
                side = "dst" if dst is None else "src"
                emit("none", worker, rank, index=index, field=field, side=side, **facts)
                sentences.append(f"{field} ({side}, index {index} of {group_size}) is None")
            else:
                shapes = {"dst_shape": list(dst.shape), "src_shape": list(src.shape)}
                emit("shape", worker, rank, index=index, field=field, **shapes, **facts)
                sentences.append(f"{field} (index {index}): {list(src.shape)} into {list(dst.shape)}")
        who = f"{worker or 'unknown'} worker, rank {'unknown' if rank is None else rank}"
        raise RuntimeError(f"ddtool {name}: copying graph inputs, {who}: {'; '.join(sentences)}")

    def model_runner(frame):
        while frame is not None:
            found = getattr(frame.f_locals.get("self"), "model_runner", None)
            if hasattr(found, "is_draft_worker"):
                return found
            frame = frame.f_back
        return None

    def field_name(buffers, batch, dst, src):
        """A destination is a slice of one of the graph's buffers; a source is an attribute of the batch."""
        by_source = [key for key, value in members(batch) if src is not None and value is src]
        if dst is None:
            return by_source[0] if by_source else "unknown"
        start = dst.untyped_storage().data_ptr()
        by_buffer = [key for key, value in members(buffers) if start and storage_of(value) == start]
        both = [key for key in by_buffer if key in by_source]
        return (both or by_buffer or by_source or ["unknown"])[0]

    def members(holder):
        for key, value in vars(holder).items() if hasattr(holder, "__dict__") else ():
            yield key, value
            if isinstance(value, dict):
                yield from ((f"{key}.{inner}", item) for inner, item in value.items())

    def storage_of(value):
        return value.untyped_storage().data_ptr() if hasattr(value, "untyped_storage") else 0

    def prove():
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
        proof["patches"].append({"name": name, "sha": sha, "file": file})
        aside = path.with_suffix(".tmp")
        aside.write_text(json.dumps(proof))
        aside.replace(path)

    try:
        prove()
    except Exception as error:  # noqa: BLE001  a diagnostic must not break the service; that it failed is said
        emit("unproven", why=f"{type(error).__name__}: {error}")
    emit("loaded", file=file)
    return check


_ddtool_graph_copy = _ddtool_graph_copy()
