"""One process per rank: loads, captures, and runs a replay for every request. Misbehaves when asked to."""

import ctypes
import logging
import os
import signal
import sys
import threading
import time
import traceback

from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import configure_logger

logger = logging.getLogger("sglang.srt.managers.scheduler")
CRASH_STATUS = 3


def set_title(title):
    """Overwrite this process's arguments, which is what `ps` and /proc show as its title."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start, arg_end
    ctypes.memmove(start, title.encode()[: end - start - 1].ljust(end - start, b"\0"), end - start)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Scheduler:
    def __init__(self, args, rank):
        from sglang.srt.model_executor import cuda_graph_runner

        self.graphs = cuda_graph_runner
        self.args = args
        self.rank = rank

    def load(self):
        logger.info("Load weight begin. avail mem=95.00 GB")
        if os.environ.get("MINI_HANG") == "start":
            self.wait_for_nothing()
        time.sleep(float(os.environ.get("MINI_SLOW_START", "0")))
        if os.environ.get("MINI_CRASH") == "start":
            raise RuntimeError("MINI_CRASH=start: the weights cannot be loaded")
        logger.info("Load weight end. type=MiniForCausalLM, avail mem=90.00 GB, mem usage=5.00 GB.")
        logger.info("Capture cuda graph begin. This can take up to several minutes. avail mem=89.00 GB")
        width = self.args.speculative_num_draft_tokens or 1
        self.runner = self.graphs.CudaGraphRunner(self.args.cuda_graph_max_bs, width)
        logger.info("Capture cuda graph bs %s", self.runner.capture_bs)
        logger.info("Capture cuda graph end. Time elapsed: 0.01 s. mem usage=0.10 GB. avail mem=88.90 GB.")

    def wait_for_nothing(self):
        threading.Event().wait()

    def decode(self, prompt_tokens):
        Tensor, width = self.graphs.Tensor, self.runner.width
        batch = self.graphs.ForwardBatch(
            input_ids=Tensor(range(width)),
            req_pool_indices=Tensor([0]),
            seq_lens=Tensor([prompt_tokens], "int32"),
            out_cache_loc=Tensor(range(width)),
            positions=Tensor(range(prompt_tokens, prompt_tokens + width)),
        )
        if os.environ.get("MINI_CRASH") == "on_generate":
            batch.positions = None
        if os.environ.get("MINI_HANG") == "on_generate":
            self.wait_for_nothing()
        self.runner.replay(batch)
        if os.environ.get("MINI_CRASH") == "after_replay":
            raise RuntimeError("MINI_CRASH=after_replay: the accepted tokens cannot be committed")
        logger.info("Decode batch, #running-req: 1, #token: %d, cuda graph: True", prompt_tokens)


def run_scheduler_process(args, rank, pipe):
    die_with_parent()
    where = f" TP{rank}" if args.tp_size > 1 else ""
    set_title("sglang::scheduler" + where.replace(" ", "_"))
    configure_logger(args, where)
    load_plugins()
    try:
        scheduler = Scheduler(args, rank)
        scheduler.load()
        pipe.send({"status": "ready"})
        while True:
            scheduler.decode(pipe.recv())
            pipe.send({"status": "decoded"})
    except EOFError:
        return
    except Exception:
        logger.error("Scheduler hit an exception: %s", traceback.format_exc())
        sys.exit(CRASH_STATUS)
