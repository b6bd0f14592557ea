"""What the tests of the documentation share: one folder in which each command runs once."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.docs.folder import fill, receiver

from longpole.cli import main
from longpole_collector import stores

PLACEHOLDERS = {"TRACE_ID": "832f4effd468", "FOLDER": "backup"}


class Shared:
    """Files in memory that the next command reads too; they are closed with the folder."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reader, name)

    def close(self) -> None:
        """Not yet."""


class Stand:
    """The commands, each run once, in a folder that is set up for them.

    Attributes:
        folder: where they run.
        got: what the sinks were told.
    """

    def __init__(self, folder: Path, got: list[dict[str, Any]]) -> None:
        self.folder, self.got = folder, got
        self._done: dict[str, Result] = {}
        self._open: dict[tuple[Path, ...], Shared] = {}
        self._real_open = stores.open_reader

    def run(self, words: tuple[str, ...], into: str | None = None) -> Result:
        """What a command printed and ended with."""
        key = " ".join(words)
        if key not in self._done:
            given = [self._real(word) for word in words]
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(self.folder)
                patch.setattr(stores, "open_reader", self.open)
                self._done[key] = CliRunner(env={"COLUMNS": "200"}).invoke(main, given)
            if into is not None:
                (self.folder / into).write_text(self._done[key].stdout)
        return self._done[key]

    def open(self, *, files: Sequence[Path] = (), **where: Any) -> Any:
        """As ``open_reader``; the same files are loaded once."""
        if not files:
            return self._real_open(**where)
        key = tuple(Path(file).resolve() for file in files)
        if key not in self._open:
            self._open[key] = Shared(self._real_open(files=files))
        return self._open[key]

    def close(self) -> None:
        """Close the files."""
        for each in self._open.values():
            each.reader.close()

    def _real(self, word: str) -> str:
        if word == "ID":
            keys = json.loads(self.run(("keys", "list", "--json")).stdout)
            return str(keys["keys"][0]["id"])
        return PLACEHOLDERS.get(word, word)


@pytest.fixture(scope="session")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    folder = tmp_path_factory.mktemp("docs")
    with receiver() as (url, got):
        fill(folder, url)
        found = Stand(folder, got)
        corpus = sorted((folder / "tests/collector/corpus").glob("*.otlp.pb"))
        kinds = ("traceloop", "openllmetry-gemini", "openllmetry-ollama")
        names = [str(each) for each in corpus if each.name.startswith(kinds)]
        done = found.run(("import", "sample_data/demo.otlp.jsonl", *names))
        assert done.exit_code == 0, done.output
        yield found
        found.close()
