# --- ddtool diagnostic @DDTOOL_PATCH@: `ddtool diag disable @DDTOOL_PATCH@` or `ddtool restore` removes it ---
def _ddtool_mem_marks(emit):
    """One mark per worker and phase: what torch has allocated and reserved, and what the device has free."""
    import torch

    seen = set()

    def mark(runner, phase):
        emit.reached()
        worker, rank = emit.who(runner)
        if (worker, phase) in seen:  # a capture may be repeated; the first one is what sized the service
            return
        seen.add((worker, phase))
        try:
            figures = measure(runner)
        except Exception as error:  # noqa: BLE001  a diagnostic must not break the service; that it failed is said
            emit("unmeasured", worker, rank, phase=phase, why=f"{type(error).__name__}: {error}")
            return
        emit("memory", worker, rank, phase=phase, **figures)

    def measure(runner):
        """Bytes. Without CUDA, `free` is what SGLang itself takes for it, and torch keeps no other figures."""
        device, number = str(runner.device), runner.gpu_id
        if torch.cuda.is_available() and device.startswith("cuda"):
            free, total = torch.cuda.mem_get_info(number)
            stats = torch.cuda.memory_stats(number)
            allocated, reserved = stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]
            peak = stats["allocated_bytes.all.peak"]
        else:
            free_gib = get_available_gpu_memory(device, number, empty_cache=False)  # noqa: F821  of this module
            free, total, allocated, reserved, peak = int(free_gib * 2**30), None, None, None, None
        return {
            "device": f"{device}:{number}",
            "allocated": allocated,
            "reserved": reserved,
            "free": free,
            "total": total,
            "peak": peak,
        }

    def decoded(runner, batch):
        """After each forward pass; only a worker's first one that decodes or verifies is measured."""
        draft, mode = runner.is_draft_worker, batch.forward_mode
        if draft in waiting and (mode.is_decode() or mode.is_target_verify()):
            waiting.discard(draft)
            mark(runner, "first-decode")

    waiting = {True, False}
    mark.decoded = decoded
    return mark


_ddtool_mem_marks = _ddtool_mem_marks(
    _ddtool_marker("@DDTOOL_PATCH@", "@DDTOOL_SHA@", "@DDTOOL_FILE@")  # noqa: F821  ../marker.py comes first
)
