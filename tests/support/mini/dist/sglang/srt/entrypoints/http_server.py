"""The HTTP answers of SGLang 0.5.12.post1 that a deploy, a gate and a load client look at."""

import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sglang.srt.managers.scheduler import CRASH_STATUS, run_scheduler_process
from sglang.version import __version__

logger = logging.getLogger("sglang.srt.entrypoints.http_server")
ACCEPT_LENGTH = 3
LIKELY = 5  # what it would say next, whatever it is asked about; and almost as likely the token after that
WORDS = "the tree of drafts is verified in one step and the longest path that agrees is kept".split()
OPEN_PATHS = ("/health", "/health_generate", "/metrics")


class Ranks:
    """The scheduler processes. The first that ends takes the service with it."""

    def __init__(self, args):
        context = multiprocessing.get_context("spawn")
        self.lock = threading.Lock()
        self.pipes, self.processes = [], []
        for rank in range(args.tp_size):
            here, there = context.Pipe()
            process = context.Process(target=run_scheduler_process, args=(args, rank, there), daemon=True)
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def wait_ready(self):
        for pipe in self.pipes:
            self.receive(pipe)

    def receive(self, pipe):
        try:
            return pipe.recv()
        except EOFError:
            logger.error("Received sigquit from a child process. It usually means the child failed.")
            self.stop()
            os._exit(CRASH_STATUS)

    def decode(self, prompt_tokens):
        with self.lock:
            for pipe in self.pipes:
                pipe.send(prompt_tokens)
            for pipe in self.pipes:
                self.receive(pipe)

    def stop(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, args, ranks):
        super().__init__((args.host, args.port), Handler)
        self.args = args
        self.ranks = ranks
        self.in_flight = 0
        self.counting = threading.Lock()

    def count(self, change):
        with self.counting:
            self.in_flight += change


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an event must not wait for the acknowledgement of the one before

    def do_GET(self):
        path = self.path.partition("?")[0]
        answers = {
            "/health": lambda: None,
            "/health_generate": lambda: None,
            "/server_info": self.server_info,
            "/get_server_info": self.server_info,
            "/model_info": self.model_info,
            "/get_model_info": self.model_info,
            "/v1/loads": self.loads,
        }
        if not self.allowed(path):
            self.answer(401, {"error": "Unauthorized"})
        elif path in answers:
            self.answer(200, answers[path]())
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if not self.allowed(self.path):
            self.answer(401, {"error": "Unauthorized"})
        elif self.path == "/generate":
            self.server.count(+1)
            try:
                answer = self.generate(body)
                if body.get("stream"):
                    self.stream(answer, float((body.get("sampling_params") or {}).get("mini_slow") or 0))
            finally:
                self.server.count(-1)
            if not body.get("stream"):
                self.answer(200, answer)
        elif self.path == "/tokenize":
            self.tokenize(body)
        elif self.path.partition("?")[0] == "/flush_cache":
            self.answer(200, None)
        else:
            self.answer(404, {"detail": "Not Found"})

    def allowed(self, path):
        key = self.server.args.api_key
        return not key or path in OPEN_PATHS or self.headers.get("Authorization") == f"Bearer {key}"

    def tokenize(self, body):
        """A chat's template is a line a message, `role: content`, and one for the answer."""
        text = body.get("prompt")
        if text is None and os.environ.get("MINI_NO_TEMPLATE"):
            self.answer(400, {"object": "error", "message": "the tokenizer has no chat template"})
            return
        if text is None:
            text = "".join(f"{one['role']}: {one['content']}\n" for one in body["messages"]) + "assistant:"
        self.answer(200, {"tokens": [len(word) for word in text.split()]})

    def generate(self, body):
        args, begun = self.server.args, time.monotonic()
        params = body.get("sampling_params") or {}
        prompt_tokens = len(body.get("input_ids") or body.get("text", "").split())
        count = params.get("max_new_tokens") or 128
        if not body.get("stream"):
            time.sleep(float(params.get("mini_slow") or 0))
        self.server.ranks.decode(prompt_tokens)
        meta = {
            "id": body.get("rid") or uuid.uuid4().hex,
            "finish_reason": {"type": "length", "length": count},
            "prompt_tokens": prompt_tokens,
            "weight_version": args.weight_version,
            "num_retractions": 0,
            "completion_tokens": count,
            "cached_tokens": 0,
            "e2e_latency": time.monotonic() - begun,
        }
        if args.speculative_algorithm:
            meta["spec_verify_ct"] = -(-count // ACCEPT_LENGTH)
            meta["spec_accept_length"] = count / meta["spec_verify_ct"]
        text = "".join(" " + WORDS[index % len(WORDS)] for index in range(count))
        ids = list(range(count))
        if os.environ.get("MINI_GREEDY") and args.speculative_algorithm and params.get("temperature"):
            logger.warning("DFLASH non-greedy verification is unavailable on this build/device; "
                           "falling back to greedy argmax verification.")
        lossy = os.environ.get("MINI_LOSSY")
        if lossy and args.speculative_algorithm:
            ids[int(lossy) :] = [token + 1 for token in ids[int(lossy) :]]
        if body.get("return_logprob"):
            likely = ((-0.4, LIKELY), (-0.4 - float(os.environ.get("MINI_GAP", "0")), LIKELY + 1))
            meta["output_top_logprobs"] = [[[value, token, None] for value, token in likely]]
        return {"text": text, "output_ids": ids, "meta_info": meta}

    def stream(self, answer, seconds):
        """A growing part of the answer for each verify step, spread over so many seconds; what only its end has, then."""
        meta, ids, words = answer["meta_info"], answer["output_ids"], answer["text"].split(" ")
        at_end = ("finish_reason", "e2e_latency", "spec_verify_ct", "spec_accept_length")
        so_far = {**{key: value for key, value in meta.items() if key not in at_end}, "finish_reason": None}
        step = ACCEPT_LENGTH if self.server.args.speculative_algorithm else 1
        ends = [*range(step, len(ids), step), len(ids)]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for end in ends:
            time.sleep(seconds / len(ends))
            about = {**(meta if end == len(ids) else so_far), "completion_tokens": end}
            self.chunk({"text": " ".join(words[: end + 1]), "output_ids": ids[:end], "meta_info": about})
        self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def chunk(self, event):
        data = b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def model_info(self):
        args = self.server.args
        return {
            "model_path": args.model_path,
            "tokenizer_path": args.tokenizer_path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": args.weight_version,
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "mini",
            "architectures": ["MiniForCausalLM"],
        }

    def loads(self):
        running = min(self.server.in_flight, self.server.args.cuda_graph_max_bs)
        load = {
            "dp_rank": 0,
            "num_running_reqs": running,
            "num_waiting_reqs": self.server.in_flight - running,
        }
        return {"version": __version__, "dp_rank_count": 1, "loads": [load]}

    def server_info(self):
        state = {"last_gen_throughput": 100.0, "avg_spec_accept_length": float(ACCEPT_LENGTH)}
        return {
            **vars(self.server.args),
            "status": "ready",
            "max_total_num_tokens": 4096,
            "internal_states": [state],
            "version": __version__,
        }

    def answer(self, status, body):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format, *args):
        logger.info('INFO:     %s:%d - "%s" %s', *self.client_address[:2], args[0], args[1])


def launch_server(server_args):
    logger.info(f"{server_args=}")
    ranks = Ranks(server_args)

    def stop(signum, frame):
        ranks.stop()
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    ranks.wait_ready()
    server = Server(server_args, ranks)
    logger.info("INFO:     Uvicorn running on http://%s:%d", server_args.host, server_args.port)
    logger.info("The server is fired up and ready to roll!")
    if os.environ.get("MINI_CRASH") == "after_ready":
        threading.Timer(0.5, crash, [ranks]).start()
    server.serve_forever()


def crash(ranks):
    try:
        raise RuntimeError("MINI_CRASH=after_ready: a request that never came")
    except RuntimeError:
        logger.exception("TokenizerManager hit an exception")
    sys.stderr.flush()
    ranks.stop()
    os._exit(CRASH_STATUS)
