"""Prompts that a file gives: asked as they stand, in an order of the seed, by both sides alike."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.engine.targets import Keeps

from longpole.cli import main
from longpole.errors import UsageError
from longpole_engine.load.against import Pairs, Side
from longpole_engine.load.arrivals import Session, Turn
from longpole_engine.load.client import Behaviour, now_ns
from longpole_engine.load.program import Program
from longpole_engine.load.progress import Progress
from longpole_engine.load.prompts import recorded
from longpole_engine.load.run import Plan, Run

TALK = [{"role": "system", "content": "be short"}, {"role": "user", "content": "why?"}]
LINES = (
    {"prompt": "fix this", "max_tokens": 7, "temperature": 0},
    {"messages": TALK, "model": "another", "stream": False},
    {"prompt": "count", "max_completion_tokens": 3},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "prompts.jsonl"
    made.write_text("\n".join(map(json.dumps, LINES)))
    return made


async def asked(path: Path, seed: int, num: int) -> Sequence[dict[str, Any]]:
    target = Keeps()
    plan = Plan("m", output_tokens=5, seed=seed, prompts=recorded(path))
    await Run(plan, target)([Session(0.0, (Turn(0.0, 9, None, (1, 2)),))] * num)
    return target.asked


async def test_a_line_is_asked_as_it_stands_but_for_model_and_stream(path: Path) -> None:
    found = await asked(path, 0, 3)
    by_text = {each["messages"][-1]["content"]: each for each in found}
    assert set(by_text) == {"fix this", "why?", "count"}
    assert all(each["model"] == "m" and each["stream"] for each in found)
    assert (by_text["fix this"]["max_tokens"], by_text["fix this"]["temperature"]) == (7, 0)
    assert (by_text["why?"]["messages"], by_text["why?"]["max_tokens"]) == (TALK, 5)
    assert by_text["count"]["max_completion_tokens"] == 3
    assert "max_tokens" not in by_text["count"]
    assert "prompt" not in by_text["count"]


async def test_all_are_asked_before_any_again_in_an_order_of_the_seed(path: Path) -> None:
    texts = [
        [each["messages"][-1]["content"] for each in await asked(path, seed, 6)]
        for seed in (1, 1, 2, 3, 4)
    ]
    assert texts[0] == texts[1]
    assert all(sorted(each[:3]) == sorted(each[3:]) == ["count", "fix this", "why?"]
               for each in texts)  # fmt: skip
    assert len(set(map(tuple, texts))) > 1


class Nowhere:
    """No traces are kept."""

    def of(self, *_: Any) -> "Nowhere":
        return self

    def begin(self, *_: Any) -> tuple[None, str]:
        return None, ""

    def end(self, *_: Any) -> None: ...

    def flush(self) -> bool:
        return True


@pytest.mark.parametrize("is_ours", [False, True])
async def test_both_sides_of_a_pair_are_asked_the_same_after_a_word_of_their_block(
    path: Path, is_ours: bool
) -> None:
    sides = Keeps(), Keeps()
    plan = Plan("m", prompts=recorded(path))
    pairs = Pairs(
        plan,
        (
            Side("base", "a", sides[0], "m", is_ours),
            Side("cand", "b", sides[1], "m", is_ours),
        ),
        2,
        lambda pair: [Session(0.0)] * 3,
        Nowhere(),  # type: ignore[arg-type]
    )
    await pairs()
    firsts = [[each["messages"][0]["content"] for each in side.asked] for side in sides]
    words = [[text.split(" ", 1) for text in side] for side in firsts]
    assert [text for _, text in words[0]] == [text for _, text in words[1]]
    # two engines of this run have a cache each: they may be asked the very same
    letters = ("", "") if is_ours else ("a", "b")
    for letter, side in zip(letters, words, strict=True):
        assert [lead for lead, _ in side] == [f"{letter}1"] * 3 + [f"{letter}2"] * 3
    assert {"be short", "fix this", "count"} == {text for _, text in words[0]}


async def test_a_command_is_given_all_texts() -> None:
    body = json.dumps({"messages": [*TALK, {"role": "assistant", "content": None}]}).encode()
    script = "import sys; sys.exit(sys.stdin.read() != 'be short\\nwhy?')"
    program = Program(f'{sys.executable} -S -c "{script}"')
    assert (await program.ask(body, None, 30.0, Behaviour.READS)).is_whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no prompts in it"),
        ("\n\n", "no prompts in it"),
        ("hello", "line 1: Expecting value"),
        ('{"prompt": "a"}\n[1]', "line 2: not a JSON object"),
        ('{"prompt": 5}', "line 1: needs 'prompt'"),
        ('{"messages": []}', "line 1: needs 'prompt'"),
        ('{"messages": ["a"]}', "line 1: needs 'prompt'"),
        ('{"messages": [{"content": "a"}]}', "line 1: needs 'prompt'"),
        ('{"messages": [{"role": "user", "content": null}]}', "line 1: needs 'prompt'"),
    ],
)
def test_a_line_that_asks_nothing_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        recorded(path)
    with pytest.raises(UsageError, match=r"none\.jsonl"):
        recorded(tmp_path / "none.jsonl")


def load(*words: str) -> Result:
    return CliRunner().invoke(main, ["load", *words, "--arrivals", "constant:50"])


def test_the_command_asks_them_and_refuses_what_is_of_others(path: Path) -> None:
    script = "import sys; sys.exit('fix' not in sys.stdin.read())"
    command = ("--command", f'{sys.executable} -S -c "{script}"', "--requests", "3")
    told = json.loads(load(*command, "--prompts", str(path), "--json").stdout)
    assert (told["num_completed"], told["failures"]) == (1, {"status_1": 2})
    for option in (("--turns", "2"), ("--language", "de"), ("--input-tokens", "128")):
        done = load(*command, "--prompts", str(path), *option)
        assert done.exit_code == 2
        assert f"{option[0]} does not go with --prompts" in done.output


async def test_progress_has_a_bar_where_the_end_is_known() -> None:
    run = Run(Plan("m"), Keeps())
    await run([Session(0.0)] * 5)
    assert Progress(10, None).line(run) == (
        "[##########..........]  5 of 10 done  0 in flight  0 failed"
    )
    assert Progress(None, None).line(run) == "5 done  0 in flight  0 failed"
    run.begun_ns = now_ns() - 10 * 1_000_000_000
    assert Progress(None, 20.0).line(run).startswith("[##########..........]")
