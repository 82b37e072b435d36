# --- ddtool diagnostic @DDTOOL_PATCH@: `ddtool diag disable @DDTOOL_PATCH@` or `ddtool restore` removes it ---
def _ddtool_nan_guard(emit):
    """The check that follows every forward pass; it reports the first bad verify pass of each worker, once."""
    import math

    import torch

    waiting = []  # (copy of the extremes, event, about): passes whose extremes are still on their way to the host
    passes = {}
    finished = set()  # workers that have reported, or cannot be checked

    def check(runner, batch, output):
        worker, rank = emit.who(runner)
        if worker in finished and not waiting:
            return
        try:
            look(worker, rank, batch, output)
        except Exception as error:  # noqa: BLE001  a diagnostic must not break the service; that it failed is said
            finished.add(worker)
            waiting.clear()
            emit("blind", worker, rank, why=f"{type(error).__name__}: {error}")

    def look(worker, rank, batch, output):
        """On a GPU the answer is read at a later pass, so that the check never waits for the device."""
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return  # asking an event would break the capture
        collect()
        if worker in finished or not batch.forward_mode.is_target_verify():
            return
        logits = getattr(getattr(output, "logits_output", None), "next_token_logits", None)
        if not isinstance(logits, torch.Tensor) or logits.dim() != 2 or logits.numel() == 0:
            return  # a worker without a head, or a stage of a pipeline that is not the last
        passes[worker] = passes.get(worker, 0) + 1
        about = {"worker": worker, "rank": rank, "pass": passes[worker]}
        about.update(bs=int(batch.batch_size), rids=list(batch.rids or ()))
        extremes = torch.stack(logits.detach().aminmax(dim=-1))  # NaN and both infinities survive it
        if not extremes.is_cuda:
            report(extremes, about)
            return
        aside = torch.empty(extremes.shape, dtype=extremes.dtype, pin_memory=True)
        aside.copy_(extremes, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        waiting.append((aside, event, about))

    def collect():
        """Events complete in order; asking one does not wait."""
        while waiting and waiting[0][1].query():
            aside, _, about = waiting.pop(0)
            report(aside, about)

    def report(extremes, about):
        emit.reached()
        bad = [row for row, pair in enumerate(extremes.t().tolist()) if not all(map(math.isfinite, pair))]
        if not bad or about["worker"] in finished:
            return
        finished.add(about["worker"])
        low, high = extremes[:, bad[0]].tolist()
        kind = "nan" if math.isnan(low) or math.isnan(high) else "inf" if high == math.inf else "-inf"
        rows = extremes.shape[1]
        width = rows // max(about["bs"], 1) or 1
        request, node = divmod(bad[0], width)
        rid = about["rids"][request] if request < len(about["rids"]) else None
        place = {"row": bad[0], "node": node, "request": request, "rid": rid, "kind": kind}
        size = {"rows": rows, "width": width, "bad_rows": len(bad), "pass": about["pass"]}
        emit("nonfinite", about["worker"], about["rank"], **place, **size)

    return check


_ddtool_nan_guard = _ddtool_nan_guard(
    _ddtool_marker("@DDTOOL_PATCH@", "@DDTOOL_SHA@", "@DDTOOL_FILE@")  # noqa: F821  ../marker.py comes first
)
