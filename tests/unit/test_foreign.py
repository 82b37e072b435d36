"""Secrets in texts that somebody else wrote: out they go as names, wherever they stand; other text stays as it is."""

from __future__ import annotations

import pytest

from ddtool.agent.foreign import Masks, masked


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Environment=HF_TOKEN=abc123def456", "Environment=HF_TOKEN=${env:HF_TOKEN}"),
        ('Environment="MY_KEY=two words"', 'Environment="MY_KEY=${env:MY_KEY}"'),
        (
            "Environment='A=1' \"DB_PASSWORD=p w\" B=2",
            "Environment='A=1' \"DB_PASSWORD=${env:DB_PASSWORD}\" B=2",
        ),
        ("x --api-key sk1 --port 1", "x --api-key ${env:SGLANG_API_KEY} --port 1"),
        ("x --api-key=sk1", "x --api-key=${env:SGLANG_API_KEY}"),
        ("x --api-key \\\n   'sk 1' -y", "x --api-key \\\n   '${env:SGLANG_API_KEY}' -y"),
        ("api-key: in-yaml-1", "api-key: ${env:SGLANG_API_KEY}"),
        ("# HF_TOKEN=old-token-in-a-comment", "# HF_TOKEN=${env:HF_TOKEN}"),
        ("HTTPS_PROXY=http://jo:hunter22@proxy:3128", "HTTPS_PROXY=${env:HTTPS_PROXY}"),
        ("echo hf_abcdefghijklmnopqrstu", "echo ${env:HF_TOKEN}"),
    ],
)
def test_masked(text: str, clean: str) -> None:
    assert masked(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "--max-total-tokens 4096 --speculative-num-draft-tokens 8 --tokenizer-path /t",
        "TOKENIZERS_PARALLELISM=false KEYBOARD=us",
        "--api-key ${API_KEY} --port 1",
        "--api-key $API_KEY",
        "HF_TOKEN=",
        "--ssl-keyfile /etc/ssl/key.pem",
        "NO_PROXY=http://localhost:3128/x@y",
    ],
)
def test_left_alone(text: str) -> None:
    assert masked(text) == text


def test_a_long_value_is_masked_wherever_it_occurs_and_a_short_one_only_in_its_place() -> None:
    masks = Masks()
    masks.learn(["--api-key abcdefgh1", "X_KEY=ab"])
    assert masks.clean("curl -H abcdefgh1; ab") == "curl -H ${env:SGLANG_API_KEY}; ab"
    assert masks.words(["--api-key", "abcdefgh1", "--name", "ab"])[1] == "${env:SGLANG_API_KEY}"


def test_an_environment_file_s_value_goes_to_the_end_of_its_line() -> None:
    masks = Masks()
    masks.learn_lines(["A_SECRET=with blanks in it\nB=plain\n"])
    assert masks.clean("A_SECRET=with blanks in it\nB=plain\n") == "A_SECRET=${env:A_SECRET}\nB=plain\n"
