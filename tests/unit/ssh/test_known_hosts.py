"""Our known_hosts against OpenSSH's own reader, `ssh-keygen -F` and `-H`, and the judgement built on it."""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ddtool.transport import knownhosts
from ddtool.transport.knownhosts import PublicKey, check, known_types, lookup_names, parse


def key(number: int, kind: str = "ssh-ed25519") -> PublicKey:
    """A well-formed public key; nobody has its private half."""
    name = kind.encode()
    body = number.to_bytes(32, "big")
    return PublicKey(kind, len(name).to_bytes(4, "big") + name + len(body).to_bytes(4, "big") + body)


def line(hosts: str, public: PublicKey, marker: str = "") -> str:
    return f"{marker} {hosts} {public.type} {base64.b64encode(public.blob).decode()} a comment".lstrip()


def covering(text: str, name: str) -> set[int]:
    return {entry.line for entry in parse(text, "known_hosts") if entry.covers(name)}


def openssh_covering(file: Path, name: str) -> set[int]:
    found = subprocess.run(
        ["ssh-keygen", "-F", name, "-f", str(file)], capture_output=True, text=True, check=False
    )
    return {int(number) for number in re.findall(r"found: line (\d+)", found.stdout)}


host = st.text(alphabet="ab.1-", min_size=1, max_size=4).filter(lambda text: not text.startswith("-"))
port = st.sampled_from(["22", "2222", "1"])
name = st.one_of(host, st.builds("[{}]:{}".format, host, port))
pattern = st.builds(
    "{}{}".format,
    st.sampled_from(["", "", "", "!"]),
    st.one_of(name, st.text("ab*?.1", min_size=1, max_size=4)),
)
entry = st.builds(
    lambda patterns, marker: line(",".join(patterns), key(1), marker),
    st.lists(pattern, min_size=1, max_size=3),
    st.sampled_from(["", "", "", "@revoked", "@cert-authority"]),
)
noise = st.sampled_from(
    [
        "",
        "# a comment",
        "garbage",
        "@unknown a ssh-ed25519 AAAA",
        # Of a host that is never asked for: ssh-keygen -F lists a key that cannot be read, ssh does not trust it.
        "zz ssh-ed25519 not-base64",
        "a 1024 35 12345",
    ]
)
QUIET = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUIET
@example(lines=[line("*,!a", key(1))], asked="a")
@example(lines=[line("[a]:2222", key(1)), line("a", key(1))], asked="[a]:2222")
@given(lines=st.lists(st.one_of(entry, entry, noise), min_size=1, max_size=6), asked=name)
def test_the_same_lines_cover_a_name_as_for_openssh(tmp_path: Path, lines: list[str], asked: str) -> None:
    file = tmp_path / "known_hosts"
    file.write_text("\n".join(lines) + "\n")
    assert covering(file.read_text(), asked) == openssh_covering(file, asked)


@QUIET
@given(names=st.lists(name, min_size=1, max_size=4), asked=name)
def test_hashed_by_openssh_and_found_by_us(tmp_path: Path, names: list[str], asked: str) -> None:
    file = tmp_path / "known_hosts"
    text = "".join(line(each, key(number)) + "\n" for number, each in enumerate(names))
    file.write_text(text)
    subprocess.run(["ssh-keygen", "-H", "-f", str(file)], capture_output=True, check=True)
    hashed = file.read_text()
    assert all(line.startswith("|1|") for line in hashed.splitlines())
    assert (
        covering(hashed, asked)
        == covering(text, asked)
        == {i + 1 for i, each in enumerate(names) if each == asked}
    )


@given(text=st.text())
def test_no_text_is_an_error(text: str) -> None:
    for found in parse(text, "known_hosts"):
        found.covers("host")


def verdict(text: str, names: tuple[str, ...], shown: PublicKey) -> tuple[str, list[int]]:
    judged = check(parse(text, "kh"), names, shown)
    return judged.state, [each.line for each in judged.entries]


A, B, RSA = key(1), key(2), key(3, "ssh-rsa")
P256, P384 = key(4, "ecdsa-sha2-nistp256"), key(5, "ecdsa-sha2-nistp384")
NAMES = lookup_names("h", 2222, None)


@pytest.mark.parametrize(
    ("lines", "shown", "expected"),
    [
        ([], A, ("unknown", [])),
        ([line("other", A)], A, ("unknown", [])),
        ([line("[h]:2222", A)], A, ("trusted", [1])),
        ([line("[h]:2222", B), line("[h]:2222", A)], A, ("trusted", [2])),
        ([line("[h]:2222", B)], A, ("changed", [1])),
        ([line("[h]:2222", RSA)], A, ("unknown", [1])),
        ([line("[h]:2222", P256)], P384, ("changed", [1])),
        # A key known for the bare name is good on any port, but it does not contradict another port's key …
        ([line("h", A)], A, ("trusted", [1])),
        ([line("h", B)], A, ("unknown", [1])),
        # … and does not overrule what is known for this port.
        ([line("[h]:2222", B), line("h", A)], A, ("changed", [1])),
        ([line("[h]:2222", A), line("h", A, "@revoked")], A, ("revoked", [2])),
        ([line("[h]:2222", A), line("*", B, "@revoked")], A, ("trusted", [1])),
        ([line("[h]:2222", A, "@cert-authority")], A, ("unknown", [])),
        ([line("*", B, "@cert-authority"), line("[h]:2222", A)], A, ("trusted", [2])),
    ],
)
def test_verdicts(lines: list[str], shown: PublicKey, expected: tuple[str, list[int]]) -> None:
    assert verdict("\n".join(lines), NAMES, shown) == expected


def test_names_to_look_up() -> None:
    assert lookup_names("Host", 22, None) == ("host",)
    assert lookup_names("Host", 2222, None) == ("[host]:2222", "host")
    assert lookup_names("10.0.0.1", 2222, "Gpu-Host") == ("gpu-host",)  # an alias has no port


def test_types_known_under_the_port_hide_those_of_the_bare_name() -> None:
    entries = parse("\n".join([line("h", RSA), line("[h]:2222", A), line("[h]:2222", B)]), "kh")
    assert known_types(entries, NAMES) == ("ssh-ed25519",)
    assert known_types(entries, ("h",)) == ("ssh-rsa",)


def test_a_fingerprint_is_openssh_s(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "k")], check=True)
    public = knownhosts.public_key((tmp_path / "k.pub").read_text().split()[:2])
    listed = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(tmp_path / "k")], capture_output=True, text=True, check=True
    )
    assert public is not None
    assert public.fingerprint == listed.stdout.split()[1]


def test_files_that_cannot_be_read_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_text(line("h", A) + "\n")
    paths = [str(tmp_path / "missing"), str(tmp_path), str(tmp_path / "known_hosts")]
    assert [each.path for each in knownhosts.load(paths)] == [paths[2]]
