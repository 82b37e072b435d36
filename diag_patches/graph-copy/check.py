# --- ddtool diagnostic @DDTOOL_PATCH@: `ddtool diag disable @DDTOOL_PATCH@` or `ddtool restore` removes it ---
def _ddtool_graph_copy(emit):
    """The check that runs before every grouped copy."""
    import sys

    def check(dsts, srcs):
        """Silent on healthy input. Names are worked out only when something is wrong."""
        emit.reached()
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
        worker, rank = emit.who(runner) if runner is not None else (None, None)
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
        raise RuntimeError(f"ddtool graph-copy: copying graph inputs, {who}: {'; '.join(sentences)}")

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

    return check


_ddtool_graph_copy = _ddtool_graph_copy(
    _ddtool_marker("@DDTOOL_PATCH@", "@DDTOOL_SHA@", "@DDTOOL_FILE@")  # noqa: F821  ../marker.py comes first
)
