"""What a change of managed files is planned on, in one request: who runs from them, and what the change would do."""

from __future__ import annotations

from typing import Any, Dict

from . import diagnostics, facts, overview, releases, txn
from .registry import Context, op


@op("diag.look")
def look(ctx: Context, request: Dict[str, Any], unit_name: str) -> Dict[str, Any]:
    """`{service, releases, diagnostics, transactions}` as in ddtool.facts/1, and `preview` as `diag.preview` answers.

    `preview` is null while a killed transaction is open: it has to be settled first.
    """
    transactions = txn.open_state(ctx)
    return {
        "service": facts.service_facts(ctx, unit_name),
        "releases": releases.listing(ctx, unit_name),
        "diagnostics": overview.overview(ctx, request["venv"]),
        "transactions": transactions,
        "preview": None if transactions["dead"] else diagnostics.preview(ctx, request),
    }
