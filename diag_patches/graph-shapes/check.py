# --- ddtool diagnostic @DDTOOL_PATCH@: `ddtool diag disable @DDTOOL_PATCH@` or `ddtool restore` removes it ---
def _ddtool_graph_shapes(emit):
    """Compares each input's length with the one that the graph was captured for, before they are copied."""
    TOKENS = (
        "input_ids",
        "positions",
        "mrope_positions",
        "out_cache_loc",
        "out_cache_loc_swa",
        "input_embeds",
    )
    REQUESTS = ("req_pool_indices", "seq_lens", "seq_lens_cpu", "encoder_lens")
    told = set()
    blind = []

    def check(runner, batch, requests, width):
        """`width`: tokens a request that the graph was captured for. Lengths only: nothing is read from the device."""
        if blind:
            return
        emit.reached()
        try:
            wrong = [
                (name, axis, rows, length)
                for axis, names, rows in (
                    ("tokens", TOKENS, requests * width),
                    ("requests", REQUESTS, requests),
                )
                for name, length in lengths(batch, names)
                if length != rows
            ]
            if wrong:
                report(runner, batch, requests, width, wrong)
        except Exception as error:  # noqa: BLE001  a diagnostic must not break the service; that it failed is said
            blind.append(error)
            emit("blind", why=f"{type(error).__name__}: {error}")

    def lengths(batch, names):
        for name in names:
            shape = getattr(getattr(batch, name, None), "shape", None)
            if shape:
                yield name, shape[-1 if name == "mrope_positions" else 0]

    def report(runner, batch, requests, width, wrong):
        worker, rank = emit.who(runner.model_runner)
        about = {"requests": requests, "mode": getattr(getattr(batch, "forward_mode", None), "name", None)}
        about["draft_token_num"] = getattr(getattr(batch, "spec_info", None), "draft_token_num", None)
        for name, axis, rows, length in wrong:
            incoming = length / requests if requests else None
            if (worker, name, incoming) in told:
                continue
            told.add((worker, name, incoming))
            emit(
                "width" if axis == "tokens" else "length",
                worker,
                rank,
                buffer=name,
                captured=width if axis == "tokens" else 1,
                incoming=int(incoming) if incoming is not None and incoming.is_integer() else incoming,
                expected_length=rows,
                incoming_length=length,
                **about,
            )

    return check


_ddtool_graph_shapes = _ddtool_graph_shapes(
    _ddtool_marker("@DDTOOL_PATCH@", "@DDTOOL_SHA@", "@DDTOOL_FILE@")  # noqa: F821  ../marker.py comes first
)
