"""Workloads: what is shipped, what a file may hold, and that synthetic prompts are the same everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtool.bench import workloads
from ddtool.bench.workloads import Prompt, Workload
from ddtool.errors import UsageError


def load(name: str, vocab: int | None = 4096, seed: int = 1) -> Workload:
    return workloads.load(name, vocab=vocab, seed=seed)


def test_the_built_in_sets_have_32_different_prompts_each() -> None:
    assert workloads.built_in() == ["chat", "code", "reasoning"]
    for name in workloads.built_in():
        found = load(name)
        assert (found.name, len(found.prompts)) == (name, 32)
        assert len({prompt.sha for prompt in found.prompts}) == 32
        assert not found.fixed
        assert all(20 < len(prompt.given["text"]) < 600 for prompt in found.prompts)


def test_a_file_may_name_its_prompts_in_four_ways(tmp_path: Path) -> None:
    rows = [
        {"prompt": "one"},
        {"text": "two", "max_tokens": 7},
        {"input_ids": [1, 2, 3]},
        {"messages": [{"role": "user", "content": "hi\u2028there"}]},
    ]
    path = tmp_path / "My Prompts.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n", encoding="utf-8")
    found = load(str(path))
    assert found.name == "my-prompts"
    assert [prompt.given for prompt in found.prompts] == [
        {"text": "one"},
        {"text": "two"},
        {"input_ids": [1, 2, 3]},
        {"messages": [{"role": "user", "content": "hi\u2028there"}]},
    ]
    assert found.prompts[1].max_tokens == 7


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"prompt": 1}',
        '{"prompt": ""}',
        '{"prompt": "a", "text": "b"}',
        '{"prompt": "a", "max_token": 3}',
        '{"prompt": "a", "max_tokens": 0}',
        '{"prompt": "a", "max_tokens": true}',
        '{"input_ids": []}',
        '{"input_ids": [1, -1]}',
        '{"input_ids": [true]}',
        '{"messages": [{"role": "user"}]}',
        '{"messages": "hello"}',
    ],
)
def test_a_bad_line_is_named_with_file_and_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "good"}\n\n' + line + "\n")
    with pytest.raises(UsageError) as caught:
        load(str(path))
    assert f"{path}:3: " in caught.value.message
    assert "max_tokens" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["poetry", "synthetic", "synthetic:0:5", "synthetic:5", "code.txt"])
def test_what_is_no_workload(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(name)
    assert "synthetic:IN:OUT" in (caught.value.hint or "")


def test_a_file_that_is_not_there_or_empty(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        load(str(tmp_path / "nowhere.jsonl"))
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UsageError, match="no prompt"):
        load(str(tmp_path / "empty.jsonl"))


@given(st.integers(1, 300), st.integers(1, 300), st.integers(16, 200_000), st.integers(0, 5))
def test_synthetic_ids_are_inside_the_vocabulary_and_follow_from_the_seed(
    length: int, answer: int, vocab: int, seed: int
) -> None:
    found = load(f"synthetic:{length}:{answer}", vocab, seed)
    assert found.fixed and found.name == f"synthetic-{length}-{answer}"
    for prompt in found.prompts:
        ids = prompt.given["input_ids"]
        assert len(ids) == length and min(ids) >= 0 and max(ids) < vocab
        assert prompt.max_tokens == answer
    assert found.sha == load(f"synthetic:{length}:{answer}", vocab, seed).sha
    if length > 8:
        assert found.sha != load(f"synthetic:{length}:{answer}", vocab, seed + 1).sha


def test_synthetic_ids_stay_what_they_were() -> None:
    """A run can be compared with one of another machine, and of another Python."""
    first = load("synthetic:4:8", 4096, 1).prompts[0].given["input_ids"]
    assert first == [1419, 3053, 917, 2670]


def test_synthetic_without_a_vocabulary() -> None:
    with pytest.raises(UsageError, match="vocabulary"):
        load("synthetic:4:8", None)


def test_the_hash_tells_order_and_lengths() -> None:
    one, two = Prompt({"text": "a"}), Prompt({"text": "b"})
    assert Workload("x", [one, two]).sha != Workload("x", [two, one]).sha
    assert Workload("x", [one]).sha != Workload("x", [Prompt({"text": "a"}, 5)]).sha
    assert one.sha == Prompt({"text": "a"}, 9).sha


def test_taken_begins_again_when_there_are_fewer() -> None:
    work = Workload("x", [Prompt({"text": text}) for text in "abc"])
    assert [prompt.given["text"] for prompt in workloads.taken(work, 5)] == ["a", "b", "c", "a", "b"]
