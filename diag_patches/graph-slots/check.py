# --- ddtool diagnostic @DDTOOL_PATCH@: `ddtool diag disable @DDTOOL_PATCH@` or `ddtool restore` removes it ---
def _ddtool_graph_slots(emit):
    """Names the buffers of a decode graph whose source is None: the copy skips them, and what was there stays."""
    import sys

    NEEDED = ("input_ids", "positions", "out_cache_loc", "req_pool_indices", "seq_lens", "encoder_lens")
    NEEDED += ("num_token_non_padded",)
    NOT_IN_GRAPH = ("seq_lens_cpu",)  # on the host: a graph cannot read it
    owners = {}  # registry -> (worker, rank) of the graph runner that it belongs to, None for an eager or prefill one
    filled = {}  # address of a buffer -> the worker that filled it last; target and draft share buffers by name
    told = set()
    blind = []

    def check(registry, batch, ctx, staged=()):
        if blind:
            return
        try:
            owner = owner_of(registry)
            if owner:
                emit.reached()
            for name, slot in registry._slots.items():
                if not slot.enabled or slot.buffer is None or name in staged or name in NOT_IN_GRAPH:
                    continue
                there = source(slot, batch, ctx)
                if there is None:
                    continue
                address = slot.buffer.data_ptr()
                if there:
                    filled[address] = owner[0] if owner else "another runner"
                elif owner and (registry, name) not in told and (address in filled or name in NEEDED):
                    told.add((registry, name))
                    report(owner, slot, filled.get(address), batch, ctx)
        except Exception as error:  # noqa: BLE001  a diagnostic must not break the service; that it failed is said
            blind.append(error)
            emit("blind", why=f"{type(error).__name__}: {error}")

    def owner_of(registry):
        if registry not in owners:
            runner = sys._getframe(3).f_locals.get("self")
            graph = hasattr(runner, "capture_forward_mode") and hasattr(runner, "model_runner")
            owners[registry] = emit.who(runner.model_runner) if graph else None
        return owners[registry]

    def source(slot, batch, ctx):
        """Whether the batch has a value for it; None for a buffer that is computed from nothing of the batch."""
        if slot.name == "num_token_non_padded":
            names = ("num_token_non_padded", "global_num_token_non_padded")
            return any(getattr(batch, name, None) is not None for name in names)
        if not slot.copy_from_fb:
            return None
        if slot.source_fn is not None:
            return slot.source_fn(batch, ctx) is not None
        return getattr(batch, slot.name, None) is not None

    def report(owner, slot, by, batch, ctx):
        emit(
            "stale",
            *owner,
            slot=slot.name,
            axis=slot.axis,
            filled_by=by,
            holds=held(slot.buffer),
            requests=ctx.raw_bs,
            padded=ctx.padded_bs,
            mode=getattr(getattr(batch, "forward_mode", None), "name", None),
        )

    def held(buffer):
        """Its first values. Waits for the device, once for each finding; not while a graph is being captured."""
        import torch

        if buffer.is_cuda and torch.cuda.is_current_stream_capturing():
            return None
        return buffer.flatten()[:4].tolist()

    return check


_ddtool_graph_slots = _ddtool_graph_slots(
    _ddtool_marker("@DDTOOL_PATCH@", "@DDTOOL_SHA@", "@DDTOOL_FILE@")  # noqa: F821  ../marker.py comes first
)
