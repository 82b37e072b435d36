"""Logs of failures made from a body: the start around it, the end behind it, in any of the forms logs come in."""

from __future__ import annotations

import json

PREFILL = (
    "Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, token usage: 0.00, "
    "#running-req: 0, #queue-req: 0,"
)
DECODE = (
    "Decode batch, #running-req: 1, #token: 90, token usage: 0.00, accept len: 4.10, cuda graph: True, "
    "gen throughput (token/s): 120.10, #queue-req: 0,"
)
ARGS = (
    "[2026-03-02 04:10:00] server_args=ServerArgs(model_path='/models/Big', tokenizer_path='/models/Big', "
    "context_length={context}, port=30000, api_key=None, tp_size=8, watchdog_timeout=300, disable_cuda_graph=False, "
    "speculative_algorithm='DFLASH', speculative_draft_model_path='/models/Big-DFlash', speculative_num_draft_tokens=8)"
)
STEPS = {
    "args": [],
    "init": ["[2026-03-02 04:10:02 TP0] Init torch distributed begin."],
    "load": [
        "[2026-03-02 04:10:06 TP0] Init torch distributed ends. mem usage=1.10 GB",
        "[2026-03-02 04:10:07 TP0] Load weight begin. avail mem=93.10 GB",
    ],
    "pool": [
        "[2026-03-02 04:11:01 TP0] Load weight end. type=BigForCausalLM, dtype=torch.bfloat16, avail mem=20.00 GB",
    ],
    "draft_load": [
        "[2026-03-02 04:11:02 TP0] KV Cache is allocated. #tokens: 200000, KV size: 7.10 GB",
        "[2026-03-02 04:11:02 TP0] Memory pool end. avail mem=11.00 GB",
        "[2026-03-02 04:11:03 TP0] Load weight begin. avail mem=11.00 GB",
    ],
    "capture": [
        "[2026-03-02 04:11:06 TP0] Load weight end. type=DFlashDraftModel, dtype=torch.bfloat16, avail mem=9.00 GB",
        "[2026-03-02 04:11:07 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=9.00 GB",
        "[2026-03-02 04:11:07 TP0] Capture cuda graph bs [1, 2, 4, 8]",
    ],
    "serving": [
        "[2026-03-02 04:11:20 TP0] Capture cuda graph end. Time elapsed: 13.00 s. avail mem=8.20 GB.",
        "[2026-03-02 04:11:22] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
        "[2026-03-02 04:11:25] The server is fired up and ready to roll!",
        f"[2026-03-02 04:11:27 TP0] {PREFILL}",
        f"[2026-03-02 04:11:28 TP0] {DECODE}",
    ],
}
KILLED = ["[2026-03-02 04:12:31] Received sigquit from a child process. It usually means the child failed."]
SERVED_ON = [
    f"[2026-03-02 04:13:30 TP0] {PREFILL}",
    f"[2026-03-02 04:13:31 TP0] {DECODE}",
    f"[2026-03-02 04:13:33 TP0] {DECODE}",
]
UNIT = "big.service"


def until(phase: str, context: int | None = None) -> list[str]:
    """What a healthy start prints up to and with `phase`; "" for nothing at all."""
    if not phase:
        return []
    lines = [ARGS.format(context=context)]
    for name, step in STEPS.items():
        lines += step
        if name == phase:
            break
    return lines


def manager(how: str) -> list[str]:
    """The service manager's last words: "killed", "exit 1", or "" for none."""
    if not how:
        return []
    status, result = {
        "killed": ("code=killed, status=9/KILL", "signal"),
        "exit 1": ("code=exited, status=1/FAILURE", "exit-code"),
        "exit 2": ("code=exited, status=2/INVALIDARGUMENT", "exit-code"),
    }[how]
    return [
        f"systemd: {UNIT}: Main process exited, {status}",
        f"systemd: {UNIT}: Failed with result '{result}'.",
    ]


def dressed(lines: list[str], form: str) -> str:
    """Lines in one of the forms; those that begin with `kernel: ` or `systemd: ` have those writers."""
    return "".join(_line(line, form, index) + "\n" for index, line in enumerate(lines))


def _line(line: str, form: str, index: int) -> str:
    source, text = "unit", line
    for writer in ("kernel", "systemd"):
        if line.startswith(f"{writer}: "):
            source, text = writer, line[len(writer) + 2 :]
    clock = f"04:12:{30 + min(index // 400, 29):02}"
    writer = {"unit": "big[4821]", "kernel": "kernel", "systemd": "systemd[1]"}[source]
    if form == "short":
        return f"Mar 02 {clock} node7 {writer}: {text}"
    if form == "precise":
        return f"2026-03-02T{clock}.{index:06}+0000 node7 {writer}: {text}"
    if form == "k8s":
        return f"2026-03-02T{clock}.{index:09}Z stdout F {text}"
    if form == "compose":
        return f"sglang-1  | {text}"
    if form == "journal":
        identifier = writer.partition("[")[0]
        return json.dumps(
            {
                "MESSAGE": text,
                "__REALTIME_TIMESTAMP": str(1772424750000000 + index),
                "SYSLOG_IDENTIFIER": identifier,
                "_PID": {"unit": "4821", "kernel": "0", "systemd": "1"}[source],
                "_TRANSPORT": "kernel" if source == "kernel" else "stdout",
                **({"_SYSTEMD_UNIT": UNIT} if source == "unit" else {}),
            }
        )
    return f"{UNIT}: {text}" if source == "systemd" and not text.startswith(UNIT) else text
