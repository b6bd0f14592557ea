"""When requests come: rates, bursts, recordings, and what is wrong with a file."""

from itertools import accumulate, islice, pairwise, takewhile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from longpole.errors import UsageError
from longpole_engine.load import prompts, replay
from longpole_engine.load.arrivals import (
    Closed,
    Session,
    Turn,
    bursts,
    gamma_gaps,
    parse,
    recorded,
    squared_cv,
)

NUM = 20_000


def test_a_constant_rate_is_constant() -> None:
    arrivals = parse("constant:4", 0)
    assert not isinstance(arrivals, Closed)
    assert [session.due_s for session in islice(arrivals, 5)] == [0, 0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("cv2", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_the_rate_and_the_burstiness_asked_for(cv2: float) -> None:
    times_s = list(islice(accumulate(gamma_gaps(50, cv2, 7)), NUM))
    assert NUM / times_s[-1] == pytest.approx(50, rel=0.03)
    assert squared_cv(times_s) == pytest.approx(cv2, rel=0.1)


def test_poisson_is_gamma_of_one() -> None:
    arrivals = parse("poisson:50", 7)
    assert not isinstance(arrivals, Closed)
    times_s = [session.due_s for session in islice(arrivals, 9)]
    assert times_s == list(islice(accumulate(gamma_gaps(50, 1.0, 7)), 9))


@given(st.floats(0.1, 5), st.floats(0.1, 5), st.integers(0, 9))
def test_bursts_stay_within_their_time(on_s: float, off_s: float, seed: int) -> None:
    times_s = list(islice(bursts(20, on_s, off_s, seed), 200))
    assert all(before <= after for before, after in pairwise(times_s))
    period_s = on_s + off_s
    assert all(
        at_s % period_s <= on_s + 1e-6 or period_s - at_s % period_s < 1e-6 for at_s in times_s
    )


def test_the_same_seed_gives_the_same_run() -> None:
    first, again, other = (list(islice(parse("poisson:9", seed), 50)) for seed in (3, 3, 4))
    assert first == again != other


@pytest.mark.parametrize(
    "text",
    [
        *("", "poisson", "poisson:0", "poisson:-1", "poisson:nan", "poisson:inf", "poisson:1:2"),
        *("gamma:1", "onoff:1:1", "closed:1.5", "closed:x", "constant:1e999", "nothing:1"),
        *("constant:100001", "poisson:1e-300", "onoff:1:1:1e9", "closed:1000000"),
    ],
)
def test_what_is_no_arrival_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="--arrivals"):
        parse(text, 0)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_recording_keeps_times_lengths_and_prefixes(tmp_path: Path) -> None:
    found = recorded(
        write(
            tmp_path,
            "a.csv",
            't_ms,input_tokens,output_tokens,block_ids\n500,10,5,1 2\n1500,20,,"1, 3"\n1500,,0,\n',
        ),
        speed=2,
    )
    assert found == [
        Session(0.0, (Turn(0.0, 10, 5, (1, 2), None),)),  # 5 and 10 tokens a block: none is full
        Session(0.5, (Turn(0.0, 20, None, (1, 3), None),)),
        Session(0.5, (Turn(0.0, None, 0, ()),)),
    ]


def test_blocks_of_one_size_stay_so_in_prompts_of_any_length(tmp_path: Path) -> None:
    """As a paged cache names them: all but the last are full, so equal ones are equal text."""
    rows = [(130, "[1,2,3]"), (90, "[1,9]"), (192, "[1,2,8]"), (65, "[1,2]"), (64, "[5]")]
    lines = [f'{{"t_s":0,"input_tokens":{num},"block_ids":{ids}}}' for num, ids in rows]
    found = recorded(write(tmp_path, "a.jsonl", "\n".join(lines)))
    texts = []
    for number, (session, (num, _)) in enumerate(zip(found, rows, strict=True)):
        (turn,) = session.turns
        assert turn.block_tokens == 64
        texts.append(prompts.text(turn, num, str(number)).split())
        assert len(texts[-1]) == num
    assert [shared(texts[0], other) for other in texts[1:]] == [64, 128, 65, 0]
    assert shared(texts[2], texts[3]) == 65


def shared(one: list[str], other: list[str]) -> int:
    """Words until two prompts differ."""
    equal = (a == b for a, b in zip(one, other, strict=False))
    return sum(takewhile(bool, equal))


def test_rows_of_one_session_are_its_turns(tmp_path: Path) -> None:
    lines = [
        '{"t_s": 1, "session": "a"}',
        '{"t_s": 2, "session": "b"}',
        '{"t_s": 4, "session": "a"}',
    ]
    found = recorded(write(tmp_path, "a.jsonl", "\n".join(lines)))
    assert found == [Session(0.0, (Turn(), Turn(3.0))), Session(1.0)]


def test_parquet_is_read(tmp_path: Path) -> None:
    table = pa.table({"t_s": [0.0, 0.5], "input_tokens": [3, 4], "block_ids": [[1], [1, 2]]})
    parquet.write_table(table, tmp_path / "a.parquet")
    found = recorded(tmp_path / "a.parquet")
    assert [session.turns[0].blocks for session in found] == [(1,), (1, 2)]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "", "no arrivals"),
        ("a.csv", "t_s,input_tokens\n", "no arrivals"),
        ("a.csv", "when\n1\n", "row 1: needs a time"),
        ("a.csv", "t_s\n1\nsoon\n", "row 2: t_s 'soon'"),
        ("a.csv", "t_s\nnan\n", "row 1"),
        ("a.csv", "t_s\n2\n1\n", "row 2: 1 s after 2 s"),
        ("a.csv", "t_s\n0\n1e300\n", "row 2: more than a year after"),
        ("a.csv", "t_s,input_tokens\n1,-4\n", "row 1: input_tokens '-4' is no whole number"),
        ("a.csv", "t_s,input_tokens\n1,1e999\n", "row 1: input_tokens '1e999'"),
        ("a.csv", "t_s,output_tokens\n1,2.5\n", "row 1: output_tokens '2.5'"),
        ("a.csv", "t_s,output_tokens\n1,nan\n", "row 1: output_tokens 'nan'"),
        ("a.csv", "t_s,block_ids\n1,one\n", "row 1: block_ids"),
        ("a.jsonl", '{"t_s": 1, "block_ids": 5}', "row 1: block_ids '5' are no numbers"),
        ("a.jsonl", "[1]\n", "line 1: not a JSON object"),
        ("a.jsonl", "{\n", "line 1"),
        ("a.parquet", "no parquet", "a.parquet"),
    ],
)
def test_a_broken_recording_is_refused_with_its_row(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        recorded(write(tmp_path, name, text))


def test_marks_and_blank_lines_of_other_programs_are_no_rows(tmp_path: Path) -> None:
    assert recorded(write(tmp_path, "a.CSV", "\ufefft_s\n0\n1\n")) == [Session(0.0), Session(1.0)]
    lines = '{"t_s": 0, "session": [1], "said": "a\u2028b"}\n\n{"t_s": 2, "session": [1]}\n\n'
    assert recorded(write(tmp_path, "a.jsonl", lines)) == [Session(0.0, (Turn(), Turn(2.0)))]


def test_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.csv"):
        recorded(tmp_path / "none.csv")


def test_equal_blocks_give_equal_prefixes_and_nothing_else_does() -> None:
    whole = prompts.text(Turn(blocks=(7, 8)), 100, "1").split()
    other = prompts.text(Turn(blocks=(7, 9)), 100, "2").split()
    assert len(whole) == len(other) == 100
    assert whole[:50] == other[:50]
    assert whole[50:] != other[50:]
    assert prompts.text(Turn(), 40, "1") != prompts.text(Turn(), 40, "2")


@pytest.mark.parametrize("language", prompts.LANGUAGES)
def test_prompts_of_every_language_have_as_many_words(language: str) -> None:
    found = prompts.text(Turn(), 60, "1", language).split()
    assert len(found) == 60
    assert len(set(found)) > 10


def test_hashes_left_out_of_a_chain_are_filled_in() -> None:
    chain = "".join(f"{number:016x}" for number in range(1, 35))
    blocks = replay._blocks(chain, 50, 7)
    assert blocks[:32] == tuple(range(1, 33))
    assert len(blocks) == len(set(blocks)) == 50
    other = replay._blocks(chain, 50, 8)  # what no hash tells is not shared
    assert blocks[:48] == other[:48]
    assert not {*blocks[48:]} & {*other[48:]}
    assert replay._blocks("", 0, 7) == ()
