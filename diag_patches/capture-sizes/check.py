# --- ddtool diagnostic @DDTOOL_PATCH@: `ddtool diag disable @DDTOOL_PATCH@` or `ddtool restore` removes it ---
def _ddtool_capture_sizes(emit):
    """Says which batch sizes get a graph and which do not, with the multiple that decides and what it is made of."""
    told = set()

    def tell(runner, candidates, width, multiple, most, parts):
        """`candidates`: before they are filtered; `width`: rows a request that count; `parts`: gives the factors."""
        emit.reached()
        try:
            candidates = sorted(set(candidates))
            worker, rank = emit.who(runner)
            if (worker, width, tuple(candidates)) in told:  # it is asked again for the size of other buffers
                return
            told.add((worker, width, tuple(candidates)))
            off = [size for size in candidates if size * width % multiple]
            above = [size for size in candidates if size > most]
            kept = [size for size in candidates if size not in off and size not in above]
            facts = {
                "width": width,
                "multiple": multiple,
                "parts": factors(parts, multiple),
                "max_requests": most,
            }
            emit("sizes", worker, rank, kept=kept, off_multiple=off, above_max=above, **facts)
        except Exception as error:  # noqa: BLE001  a diagnostic must not break the service; that it failed is said
            emit("blind", why=f"{type(error).__name__}: {error}")

    def factors(parts, multiple):
        """{reason: factor}, in the order in which SGLang multiplies; their product is the multiple."""
        two_batches, gathered, attention_tp, attention_cp = parts()
        found = {"two_batch_overlap": 2} if two_batches else {}
        if gathered:
            found["gathered_buffer: attention tp"] = attention_tp
        product = (2 if two_batches else 1) * (attention_tp if gathered else 1)
        if product % attention_cp:
            found["attention cp"] = attention_cp
            product *= attention_cp
        if product != multiple:
            found["unexplained"] = multiple / product
        return found

    return tell


_ddtool_capture_sizes = _ddtool_capture_sizes(
    _ddtool_marker("@DDTOOL_PATCH@", "@DDTOOL_SHA@", "@DDTOOL_FILE@")  # noqa: F821  ../marker.py comes first
)
