"""Any sequence of enable, disable, adopt, upgrade, kill and restore on a real host keeps the promises.

After every step each managed file is compose(baseline, enabled patches), worked out here from the ledger and the kept
objects; and at the end `restore --to wheel` leaves what RECORD says, which is checked without ddtool.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from support import doctored, mini

from ddtool import profile
from ddtool.agent import compose_script
from ddtool.agent.compose import job_of, patch_sha
from ddtool.deploy.deployment import Deployment
from ddtool.deploy.toggle import toggle_request
from ddtool.errors import DdtoolError, Drift, UsageError
from ddtool.sandbox import Sandbox, exec_inside

pytestmark = [pytest.mark.host, pytest.mark.timeout(7200)]

GRAPHS, RANKS = "sglang/srt/model_executor/cuda_graph_runner.py", "sglang/srt/managers/scheduler.py"
NEXT = "0.5.13"
CHANGED = {mini.VERSION: {}, NEXT: {RANKS: mini.dist_files()[RANKS] + b"# a newer release\n"}}

# Prints the managed files, the ledger's entries, the kept objects, what differs from RECORD, and what lies about.
LOOK = r"""
import base64, csv, glob, hashlib, json, pathlib
site, = map(pathlib.Path, glob.glob("/opt/mini/venv/lib/python3*/site-packages"))
state = pathlib.Path("/var/lib/ddtool")
record = next(site.glob("sglang-*.dist-info")) / "RECORD"
differs = []
for name, digest, size in csv.reader(record.open()):
    if digest:
        own = base64.urlsafe_b64encode(hashlib.sha256((site / name).read_bytes()).digest()).rstrip(b"=").decode()
        if digest != "sha256=" + own:
            differs.append(name)
def text(path):
    return base64.b64encode(path.read_bytes()).decode()
print(json.dumps({
    "files": {name: text(site / name) for name in FILES},
    "entries": [json.loads(path.read_text())["files"] for path in (state / "ledger").glob("*.json")],
    "objects": {path.name: text(path) for path in (state / "objects").glob("*")},
    "differs": differs,
    "left": [str(path) for top in (site, state / "ledger", state / "objects") for path in top.rglob(".ddtool-*")]
            + [str(path) for path in state.glob("txn.open")],
}))
""".replace("FILES", repr([GRAPHS, RANKS]))


def patch(name: str, *targets: tuple[str, str, str]) -> dict[str, Any]:
    """A diagnostic that logs its name before an anchor: (file, function, anchor) each."""
    made = []
    for file, function, anchor in targets:
        source = compose_script.read_source(mini.dist_files()[file], file)
        node = compose_script.find_function(source.tree, function)
        assert node is not None
        known = compose_script.function_sha256(node)
        made.append(
            {
                "file": file,
                "function": function,
                "releases": [mini.VERSION, NEXT],
                "ast_sha256": {mini.VERSION: known, NEXT: known},
                "append": f"_ddtool_{name} = '@DDTOOL_SHA@'",
                "edits": [{"anchor": anchor, "place": "before", "code": f"logger.info('_ddtool_{name}')"}],
            }
        )
    return {"name": name, "kind": "diagnostic", "expires": 14, "targets": made}


REPLAY = (GRAPHS, "CudaGraphRunner.replay", "raw_bs = len(forward_batch.seq_lens)")
CAPTURE = (GRAPHS, "get_batch_sizes_to_capture", "return [bs for bs in (1, 2, 4, 8, 16) if bs <= max_bs]")
WAIT = (RANKS, "Scheduler.wait_for_nothing", "threading.Event().wait()")
PATCHES = {
    item["name"]: item
    for item in (patch("replay", REPLAY), patch("sizes", CAPTURE), patch("both", REPLAY, WAIT))
}
SOME = st.sets(st.sampled_from(sorted(PATCHES)), min_size=1, max_size=2)
FILE = st.sampled_from([GRAPHS, RANKS])


class Host(RuleBasedStateMachine):
    sandbox: Sandbox

    @initialize()
    def connect(self) -> None:
        done = exec_inside(self.sandbox, ["rm", "-rf", "/var/lib/ddtool"])
        assert done.returncode == 0, done.stderr
        mini.upgrade(self.sandbox, mini.VERSION, {})
        loaded = profile.load(str(mini.PROFILE))
        self.deployment = Deployment(loaded, f"sandbox:{self.sandbox.name}")
        self.foreign: dict[str, bytes] = {}
        self.edits = 0
        self.version = mini.VERSION
        self.seen = look(self.sandbox)

    def teardown(self) -> None:
        if not hasattr(self, "deployment"):
            return
        try:
            self.back_to_the_wheel()
        finally:
            self.deployment.agent.close()
            self.deployment.agent.host.close()

    def back_to_the_wheel(self) -> None:
        """The wheel is passed: what was edited by hand before ddtool came, the host has no clean copy of."""
        wheel = mini.dist_files(self.version, CHANGED[self.version])
        files = {name: encoded(wheel[name]) for name in (GRAPHS, RANKS)}
        managed = set().union(*self.seen["entries"])
        assert self.do({"op": "restore", "to": "wheel", "wheel_files": files, "force": True})
        now = look(self.sandbox)
        assert set(now["differs"]) <= set(self.foreign) - managed, now[
            "differs"
        ]  # not ddtool's: left as they are
        assert now["left"] == []

    @rule(names=SOME)
    def enable(self, names: set[str]) -> None:
        self.toggle(enable=sorted(names))

    @rule(names=SOME)
    def disable(self, names: set[str]) -> None:
        self.toggle(disable=sorted(names))

    @rule(names=SOME, at=st.integers(1, 90))
    def killed_while_enabling(self, names: set[str], at: int) -> None:
        """At any act of the executor; the next command settles it."""
        doctored.arm(self.sandbox, "txn", at)
        self.toggle(enable=sorted(names))
        doctored.disarm(self.sandbox)
        self.settle()

    @rule(at=st.integers(1, 90))
    def killed_while_restoring(self, at: int) -> None:
        doctored.arm(self.sandbox, "txn", at)
        self.do({"op": "restore"})
        doctored.disarm(self.sandbox)
        self.settle()

    @rule(force=st.booleans())
    def restore(self, force: bool) -> None:
        self.do({"op": "restore", "force": force})

    @rule(name=st.sampled_from(["fork", "mine"]))
    def adopt(self, name: str) -> None:
        if self.do({"op": "adopt", "name": name, "who": "test"}):
            self.foreign = {}

    @rule(file=FILE)
    def edit(self, file: str) -> None:
        """By hand, as people do."""
        self.edits += 1
        content = self.content(file) + f"# by hand {self.edits}\n".encode()
        path = f"/opt/mini/venv/lib/python3.*/site-packages/{file}"
        done = exec_inside(self.sandbox, ["sh", "-c", f"base64 -d > $(echo {path})"], input=encoded(content))
        assert done.returncode == 0, done.stderr
        self.foreign[file] = content

    @rule()
    def upgrade(self) -> None:
        self.version = NEXT if self.version == mini.VERSION else mini.VERSION
        mini.upgrade(self.sandbox, self.version, CHANGED[self.version])
        self.foreign = {}

    def toggle(self, enable: list[str] | None = None, disable: list[str] | None = None) -> None:
        definitions = [PATCHES[name] for name in enable or []]
        self.do(toggle_request("", enable=definitions, disable=disable or []))

    def do(self, request: dict[str, Any]) -> bool:
        """False when it was refused, or killed; a refusal says what to do next."""
        deployment = self.deployment
        deployment._facts = None
        request = {**request, "venv": mini.VENV}
        try:
            plan = deployment.plan_toggle(str(request["op"]), request, restart=False)
            if plan.nothing_to_do:
                return True
            deployment.apply(plan, ignore)
        except (Drift, UsageError) as refused:
            assert refused.hint, refused
            return False
        except DdtoolError as error:
            assert "was killed" in error.message, error
            return False
        if request.get("force"):
            kept = look(self.sandbox)["objects"].values()
            for file in [file for file in self.foreign if self.content(file) != self.foreign[file]]:
                assert encoded(self.foreign.pop(file)) in kept, "what was overwritten by force is not kept"
        return True

    def settle(self) -> None:
        self.deployment._facts = None
        self.deployment.settle(ignore)

    def content(self, file: str) -> bytes:
        return base64.b64decode(look(self.sandbox)["files"][file])

    @invariant()
    def every_managed_file_is_composed(self) -> None:
        if not hasattr(self, "deployment"):
            return
        self.seen = look(self.sandbox)
        assert self.seen["left"] == []
        files = {name: base64.b64decode(content) for name, content in self.seen["files"].items()}
        for name, content in self.foreign.items():
            assert files[name] == content, f"{name} was edited by hand, and that is lost"
        clean = mini.dist_files(self.version, CHANGED[self.version])
        for name, content in files.items():
            if name not in self.foreign:
                assert content in (self.composed(name), clean[name]), f"{name} is half-patched"

    def composed(self, name: str) -> bytes | None:
        """What the ledger promises of a file, composed here."""
        entry = next((entries[name] for entries in self.seen["entries"] if name in entries), None)
        if entry is None:
            return None
        baseline = base64.b64decode(self.seen["objects"][entry["baseline"]["sha"]])
        by_sha = {patch_sha(item): item for item in PATCHES.values()}
        patches = [by_sha[item["sha"]] for item in entry["patches"]]
        job = compose_script.Job(name, baseline, job_of(name, baseline, patches)["patches"])
        return compose_script.compose([job])[0].content


def look(host: Sandbox) -> dict[str, Any]:
    done = exec_inside(host, ["python3", "-I", "-c", LOOK])
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def ignore(event: dict[str, Any]) -> None:
    return


def machine(host: Sandbox, monkeypatch: pytest.MonkeyPatch, examples: int, steps: int) -> None:
    monkeypatch.setattr("ddtool.transport.agent.agent_zipapp", doctored.agent)
    monkeypatch.setattr(Host, "sandbox", host, raising=False)
    run_state_machine_as_test(
        Host,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            report_multiple_bugs=False,
        ),
    )


@pytest.fixture(scope="module")
def installed(host: Sandbox) -> Sandbox:
    mini.install(host)
    return host


def test_a_few_sequences(installed: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(installed, monkeypatch, examples=2, steps=8)


@pytest.mark.slow
def test_many_sequences(installed: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(installed, monkeypatch, examples=20, steps=20)
