"""Every command of the documentation runs, and prints what the page shows."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml
from tests.docs.conftest import Stand
from tests.docs.pages import DOCS, PAGES, ROOT, Command, blocks, commands, missing

from longpole import config
from longpole.cli import main
from longpole.testing import capture_spans
from longpole.vocab import keys

STAYS = {("demo",), ("serve",), ("open",), ("collect",), ("engine", "serve"), ("load",)}
"""Commands that stay or need a server: other tests start them, here their options are parsed."""
LONG = {("engine", "shape"), ("engine", "roofline"), ("doctor",)}
"""Those that measure or look at the machine; tests/engine and tests/collector run them."""
FINE = {0, 3, 4}
"""What a command may end with where the page does not say: 3 and 4 are answers."""


def parsed(words: tuple[str, ...]) -> tuple[str, ...]:
    """The command's own name, after its options were found to be right."""
    path, left = list[str](), list(words)
    context = click.Context(main, info_name="longpole", **main.context_settings)
    command: click.Command = main
    while isinstance(command, click.Group) and left:
        inner = command.get_command(context, left[0])
        if inner is None:
            raise click.UsageError(f"no command {left[0]}")
        path.append(left.pop(0))
        command = inner
    command.make_context(path[-1], left, parent=context)
    return tuple(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_commands_run_and_print_what_it_shows(page: Path, stand: Stand) -> None:
    for command in commands(page):
        where = f"{page.name}:{command.line}: longpole {command.text}"
        name = tuple(word for word in command.words[:2] if not word.startswith("-"))
        if {name, name[:1]} & STAYS or {name, name[:1]} & LONG or asks(command):
            parsed(command.words)
            continue
        done = stand.run(command.words, command.into)
        wanted = FINE if command.exit_code is None else {command.exit_code}
        assert done.exit_code in wanted, f"{where}\n{done.output}"
        gone = missing(command.shown, done.stdout)
        assert gone is None, f"{where}\nshown, not printed: {gone}\n{done.stdout}"


def test_the_test_of_a_sink_arrives_and_ends(stand: Stand) -> None:
    assert stand.run(("alerts", "test", "chat")).exit_code == 0
    assert [each["status"] for each in stand.got] == ["firing", "resolved"]


def asks(command: Command) -> bool:
    """Whether a server is asked that would have to run elsewhere."""
    is_load = command.words[0] == "load" and "--command" not in command.words
    return "--url" in command.words or is_load


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_other_blocks_can_be_read(page: Path) -> None:
    faults = []
    for block in blocks(page):
        try:
            read(block.language, block.text)
        except (SyntaxError, ValueError, yaml.YAMLError) as error:
            faults.append(f"{page.name}:{block.line}: {error}")
    assert faults == []


def test_the_tutorials_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    wrapping, working = (
        block.text
        for block in blocks(DOCS / "tutorial" / "your-application.md")
        if block.language == "python"
    )
    names: dict[str, Any] = {"find": lambda text: f"about {text}"}
    with capture_spans() as spans:
        exec(compile(wrapping, "page", "exec"), names)
        names["client"].close()
        said = SimpleNamespace(create=lambda **_: ["a", "b"])  # a provider would have to be paid
        names["client"] = SimpleNamespace(chat=SimpleNamespace(completions=said))
        exec(compile(working, "page", "exec"), names)
    (root,) = spans.named("invoke_workflow answer")
    assert (root.attributes or {})[keys.OUTCOME] == "accepted"
    assert (root.attributes or {})[keys.ROUTE] == "rag.search"
    assert len(spans.named("retrieval docs")) == 1


def read(language: str, text: str) -> Any:
    """The block as its language has it."""
    if language == "python":
        return compile(text, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if language == "toml":
        document = tomllib.loads(text)
        if not {"version", "routes"} & set(document):  # a file of routes is its own
            assert set(document) <= set(config.TABLES), set(document)
        return document
    if language == "yaml":
        return list(yaml.safe_load_all(text))
    return json.loads(text) if language == "json" else None


def test_links_between_pages_lead_somewhere() -> None:
    gone = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            if "://" in path:
                continue
            file = (page.parent / path) if path else page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                gone.append(f"{page.relative_to(ROOT)}: {target}")
    assert gone == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as MkDocs makes them."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", head).strip().lower() for head in heads)
    return {re.sub(r"[-\s]+", "-", head) for head in plain}


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page() -> None:
    site = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), yaml.SafeLoader)

    def entries(nav: Any) -> Iterator[str]:
        for each in nav if isinstance(nav, list) else nav.values():
            if isinstance(each, str):
                yield each
            else:
                yield from entries(each)

    listed = list(entries(site["nav"]))
    assert len(listed) == len(set(listed))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert set(listed) <= pages
    assert pages - set(listed) == set()


def test_no_page_names_a_place_on_somebodys_machine() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        assert not re.search(r"/work/|/tmp/|\bTODO\b", text), page
