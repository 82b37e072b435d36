"""Secrets, however they are written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from support.cli import ddtool

from ddtool.agent import collect, redact
from ddtool.agent.registry import Context


@pytest.mark.parametrize(
    "secret", ['pa"ss\\word/+=', "schlüssel-ü", "it's-a-'quoted'-one", "plain-and-simple"]
)
def test_a_secret_is_masked_in_every_form_of_it(ctx: Context, secret: str) -> None:
    folder = ctx.state / "services" / "svc" / "releases" / "0001"
    folder.mkdir(parents=True)
    (folder / "secrets.json").write_text(json.dumps({"KEY": secret}))
    values = redact.secret_values(ctx)
    texts = [secret, repr(secret), json.dumps(secret), json.dumps(repr(secret)), quote(secret, safe="")]
    record = json.dumps({"text": f"ServerArgs(api_key={secret!r})"}) + json.dumps(
        {"text": json.dumps(secret)}
    )
    cleaned = redact.mask_bytes("\n".join([*texts, record]).encode(), values).decode()
    assert cleaned.count(redact.MASK) == len(texts) + 2
    assert not any(form in cleaned for form in redact.forms(secret))
    assert redact.Redactor(ctx).clean({"a": [repr(secret)]}) == {
        "a": [repr(secret).replace(repr(secret)[1:-1], redact.MASK)]
    }


def test_evidence_has_no_secret_of_a_drop_in_or_a_command_line(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit's owner may set HF_TOKEN in a drop-in of his own, and other services have keys in their arguments."""
    said = {
        "unit.txt": b"Environment=HF_TOKEN=hf_literal-token MODE=fast\n",
        "unit-files.txt": b"# drop-in\n[Service]\nEnvironment=HF_TOKEN=hf_literal-token\n",
        "argv.txt": b"python -m other --api-key sk-other-service --port 1\n",
        "processes.txt": b"1 psql --password=hunter2hunter2 PGPASSWORD='quoted one'\n",
        "journal.jsonl": b'{"text": "using hf_literal-token for downloads"}\n',
    }
    monkeypatch.setattr(
        collect, "sources", lambda *_: ((name, lambda name=name: said[name]) for name in said)
    )
    monkeypatch.setattr(collect, "run", lambda command: said["unit-files.txt"])
    monkeypatch.setattr(collect, "argv", lambda name: said["argv.txt"])
    assert list(collect.gather(ctx, "svc", "run1", tmp_path)) == list(said)
    kept = {name: (tmp_path / name).read_text() for name in said}
    for secret in ("hf_literal-token", "sk-other-service", "hunter2hunter2", "quoted one"):
        assert [name for name, text in kept.items() if secret in text] == []
    assert "MODE=fast" in kept["unit.txt"] and "--port 1" in kept["argv.txt"]


def test_a_literal_secret_in_set_is_not_repeated() -> None:
    for key in ("service.api_key", "env.HF_TOKEN", "server_args.api-key"):
        done = ddtool("profile", "validate", "demo", "--set", f"{key}=literal-secret-1")
        assert done.returncode == 2 and "literal-secret-1" not in done.stdout + done.stderr


def test_a_traceback_of_ddtool_shows_no_local_variable() -> None:
    """Of a mistake in ddtool itself: which line, and not what its variables held."""
    program = (
        "import sys\n"
        "from ddtool.cli import main\n"
        "from ddtool.diagnostics import definition\n"
        "def broken():\n"
        "    api_key = 'sk-' + 'in-a-variable'\n"
        "    raise RuntimeError('a mistake')\n"
        "definition.load_all = broken\n"
        "sys.argv = ['ddtool', 'diag', 'list']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "RuntimeError: a mistake" in done.stderr, done.stderr
    assert "sk-in-a-variable" not in done.stderr + done.stdout
