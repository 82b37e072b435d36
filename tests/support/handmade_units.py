"""Units as people write them, by name: `Made(texts, environment files, scripts, configs)`, made up for these tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ddtool.agent.foreign import Masks

ETC = "/etc/systemd/system"


@dataclass(frozen=True)
class Made:
    unit: str
    texts: dict[str, str]
    environment_files: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)
    process: dict[str, Any] | None = None
    server: dict[str, Any] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)

    def found(self) -> dict[str, Any]:
        """As the host's unit.read answers."""
        masks = Masks()
        masks.learn_lines(self.environment_files.values())
        words = self.process["argv"] if self.process else []
        sources = {**self.texts, **self.environment_files, **self.scripts, **self.configs}
        masks.learn([*sources.values(), " ".join(words)])
        return {
            "unit": self.unit,
            "hostname": "gpu1",
            "texts": masks.all(self.texts),
            "environment_files": masks.all(self.environment_files),
            "scripts": masks.all(self.scripts),
            "configs": masks.all(self.configs),
            "process": {**self.process, "argv": masks.words(words)} if self.process else None,
            "server": self.server,
            "homes": self.homes,
            "secrets": dict.fromkeys(masks.names.values(), "somewhere"),
        }


def one(unit: str, service: str, **more: Any) -> Made:
    text = f"[Unit]\nDescription={unit}\n\n[Service]\n{service}\n[Install]\nWantedBy=multi-user.target\n"
    return Made(unit, {f"{ETC}/{unit}.service": text}, **more)


PLAIN = one(
    "sglang",
    """Type=simple
ExecStart=/opt/venv/bin/python -m sglang.launch_server --model-path /models/qwen --port 31000 --attention-backend triton
Restart=always
RestartSec=5
LimitNOFILE=1048576
""",
)
LOGIN_SHELL = one(
    "sglang-k26-ddtree",
    """User=root
WorkingDirectory=/root
ExecStart=/bin/bash -lc "source /root/venv_sglang211/bin/activate && exec python -m sglang.launch_server \\
    --model-path /models/Kimi-K2.6 --served-model-name kimi --tp 8 --host 0.0.0.0 --port 30001 \\
    --api-key 'sk-secret-of-the-team-1' --trust-remote-code --attention-backend triton \\
    --speculative-algorithm DFLASH --speculative-draft-model-path /models/Kimi-K2.6-DFlash \\
    --speculative-num-draft-tokens=8 --mem-fraction-static 0.85 --cuda-graph-max-bs 16"
Environment=NCCL_PROTO=LL128 NCCL_MIN_NCHANNELS=16
Environment="NCCL_P2P_LEVEL=SYS" 'SGLANG_NOTE=two words'
TimeoutStopSec=2min
StandardOutput=append:/var/log/sglang.log
LimitMEMLOCK=infinity
""",
)
ENV_PREFIX = one(
    "serve",
    """ExecStart=/usr/bin/env CUDA_VISIBLE_DEVICES=0,1 HF_TOKEN=hf_abcdefghijklmnopqrstu \\
  /opt/venv/bin/sglang serve --model-path=/models/q \\
  --tp-size=2 --attention-backend=flashinfer
Nice=-5
MemoryMax=90%
OOMScoreAdjust=-900
""",
)
ENVIRONMENT_FILE = one(
    "inference",
    """EnvironmentFile=-/etc/default/%p
EnvironmentFile=/etc/sglang/%N.env
Environment=PORT=30000
ExecStartPre=/bin/sleep 0
ExecStart=/opt/venv/bin/python3 -m sglang.launch_server --model-path ${MODEL} --port $PORT \\
  --api-key ${API_KEY} $EXTRA_ARGS
""",
    environment_files={
        "/etc/sglang/inference.env": '# who: jo\nMODEL=/models/deepseek\nPORT=31500\nAPI_KEY="abcdefgh12345678"\n'
        "EXTRA_ARGS=--attention-backend triton --context-length 32768\nexport IGNORED=1\n"
    },
)
DROP_INS = Made(
    "sglang",
    {
        "/usr/lib/systemd/system/sglang.service": "[Unit]\nDescription=vendor\n[Service]\n"
        "ExecStart=/usr/bin/false\nEnvironment=A=1\nEnvironment=B=1\n",
        f"{ETC}/sglang.service.d/10-start.conf": "[Service]\nExecStart=\nExecStart=/opt/venv/bin/python -m "
        "sglang.launch_server --model /models/m --attention-backend triton\n",
        f"{ETC}/sglang.service.d/20-env.conf": "[Service]\nEnvironment=\nEnvironment=B=2\nCPUAffinity=0-15\n",
    },
)
TEMPLATE = Made(
    "sglang@k26",
    {
        f"{ETC}/sglang@.service": "[Unit]\nDescription=SGLang %i\n[Service]\nWorkingDirectory=/srv/%i\n"
        "ExecStart=/opt/%p/bin/python -m sglang.launch_server --model-path /models/%i --served-model-name %i "
        "--attention-backend triton --log-requests-format json%%x\n"
    },
)
SCRIPT = one(
    "kimi",
    """User=llm
Group=llm
ExecStart=/srv/kimi/start.sh
KillMode=process
LimitCORE=infinity
""",
    scripts={
        "/srv/kimi/start.sh": """#!/usr/bin/env bash
set -euo pipefail
cd /srv/kimi            # where the models are
. ./common.env
source /srv/kimi/.venv/bin/activate
export SGLANG_LOG_MS=1 OMP_NUM_THREADS=${THREADS:-8}
MODEL_DIR=/models
ARGS="--tp 4 --context-length 65536"
ulimit -n 4096
mkdir -p /var/log/kimi
exec numactl --cpunodebind=0 --membind=0 python3 -u -m sglang.launch_server \\
  --model-path "$MODEL_DIR/kimi" $ARGS \\
  --json-model-override-args '{"max_position_embeddings": 65536}' \\
  --cuda-graph-bs 1 2 4 8 --cuda-graph-max-bs 8 --attention-backend triton \\
  "$@" >> /var/log/kimi/out.log 2>&1
"""
    },
    homes={"llm": "/home/llm"},
)
SIZED = (
    "/opt/venv/bin/python -m sglang.launch_server --model-path /models/m --tp 8 --attention-backend triton "
    "--api-key key-of-the-process-1"
)
COMPUTED = one(
    "sized",
    """ExecStart=/bin/sh -c 'if [ -e /dev/nvidia4 ]; then TP=8; else TP=4; fi; exec /opt/venv/bin/python -m \\
  sglang.launch_server --model-path /models/m --tp $TP --attention-backend triton'
""",
    process={
        "pid": 7,
        "argv": SIZED.split(),
        "cwd": "/",
    },
)
CONTAINER = one(
    "boxed", "ExecStart=/usr/bin/docker run --rm --gpus all lmsysorg/sglang python3 -m sglang.launch_server\n"
)
EAGLE = one(
    "eagle",
    """ExecStart=/opt/venv/bin/python -m sglang.launch_server --model-path /models/llama \\
  --speculative-algorithm EAGLE3 \\
  --speculative-draft-model-path /models/eagle --speculative-num-steps 3 --speculative-eagle-topk 4 \\
  --speculative-num-draft-tokens 16 --attention-backend fa3 --nnodes 1 --disable-cuda-graph
""",
)
FORK_TREE = one(
    "tree",
    """ExecStart=/opt/fork/bin/python -m sglang.launch_server --model-path /models/k --speculative-algorithm DDTREE \\
  --speculative-draft-model-path /models/d --speculative-num-draft-tokens 33 --speculative-dflash-block-size 8 \\
  --speculative-ddtree-topk 8 --attention-backend triton
""",
)
CONFIG_FILE = one(
    "configured",
    "ExecStart=/opt/venv/bin/python -m sglang.launch_server --config /etc/sglang/k.yaml --port 32000\n",
    configs={
        "/etc/sglang/k.yaml": "model-path: /models/k\nport: 31000\ntp_size: 2\nenable-metrics: true\n"
        "disable-radix-cache: false\napi-key: in-the-config-file-1\nattention-backend: triton\n"
    },
)
HUB = one(
    "hub",
    "WorkingDirectory=/root/sglang/python\nExecStart=/opt/venv/bin/python3.11 -m sglang.launch_server --model-path "
    "Qwen/Qwen3-8B --tokenizer-worker-num 2 --mem-frac 0.8\n",
    server={"attention_backend": "fa3"},
)
CONTINUED = one(
    "continued",
    "ExecStart=-/opt/venv/bin/python \\\n# a comment in between\n\t-m sglang.launch_server \\\n"
    '  --model-path "/models/with blank" \\\n  --chat-template /etc/t\\x20u.jinja \\\n  --attention-backend triton\r\n'
    'Environment=MSG="a \\"quoted\\" 50%% off" EMPTY= "NEST=x\'y"\n',
)
ALL = {name.lower(): value for name, value in sorted(globals().items()) if isinstance(value, Made)}
