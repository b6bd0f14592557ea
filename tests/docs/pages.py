"""The pages of the documentation as tests read them: blocks, commands, what is printed."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(DOCS.rglob("*.md")),
    ROOT / "README.md",
    ROOT / "sample_data" / "README.md",
    *sorted((ROOT / "examples").glob("*/README.md")),
]
_FENCE = re.compile(r"^( *)(`{3,})(\w*)\n(.*?)^\1\2$", re.MULTILINE | re.DOTALL)
_EXIT = re.compile(r"#.*?\bexit (\d)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text without indent, and the line it begins at."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """A command line of a page.

    Attributes:
        words: the command and its arguments.
        into: the file that takes its output, if the page says ``> file``.
        exit_code: what the page says it ends with, in a comment ``# exit 3``.
        shown: what the page shows of its output; empty if nothing.
        line: where it stands.
    """

    words: tuple[str, ...]
    into: str | None
    exit_code: int | None
    shown: str
    line: int

    @property
    def text(self) -> str:
        return shlex.join(self.words)


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    found = []
    for match in _FENCE.finditer(text):
        indent = len(match[1])
        body = "\n".join(line[indent:] for line in match[4].splitlines()) + "\n"
        found.append(Block(match[3], body, text.count("\n", 0, match.start()) + 1))
    return found


def commands(page: Path) -> list[Command]:
    """The ``longpole`` lines of a page's blocks; the last of a block has the output shown below."""
    text = page.read_text("utf-8").splitlines()
    every = blocks(page)
    found: list[Command] = []
    for place, block in enumerate(every):
        after = every[place + 1] if place + 1 < len(every) else None
        if block.language not in ("", "sh"):
            continue
        lines = list(_lines(block))
        end = block.line + block.text.count("\n") + 1
        is_next = after is not None and not after.language and not any(text[end : after.line - 1])
        for order, (line, number) in enumerate(lines):
            is_last = order == len(lines) - 1
            shown = after.text if after is not None and is_next and is_last else ""
            found.append(_command(line, number, shown))
    return found


def _lines(block: Block) -> Iterator[tuple[str, int]]:
    """The command lines; one goes on while a quote is open."""
    waiting, began = "", 0
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if not waiting and not re.match(r"(\$ |\S*/)?longpole ", line):
            continue
        waiting, began = (f"{waiting}\n{line}", began) if waiting else (line, number)
        try:
            shlex.split(waiting, comments=True)
        except ValueError:
            continue
        yield waiting.removeprefix("$ "), began
        waiting = ""
    if waiting:
        raise ValueError(f"a quote is left open in the block at line {block.line}")


def _command(line: str, number: int, shown: str) -> Command:
    words = shlex.split(line, comments=True)
    if "||" in words:
        words = words[: words.index("||")]
    into = None
    if ">" in words:
        into = words[words.index(">") + 1]
        words = words[: words.index(">")]
    said = _EXIT.search(line)
    return Command(tuple(words[1:]), into, int(said[1]) if said else None, shown, number)


def missing(shown: str, printed: str) -> str | None:
    """The first shown line that was not printed, in order; ``None`` if all were.

    Blanks count once. ``...`` stands for anything: alone for lines, within one for a part of it.
    """
    left = [" ".join(line.split()) for line in printed.splitlines()]
    for line in shown.splitlines():
        wanted = " ".join(line.split())
        if wanted in ("", "..."):
            continue
        pattern = ".*".join(re.escape(part) for part in wanted.split("..."))
        for place, each in enumerate(left):
            if re.fullmatch(pattern, each):
                left = left[place + 1 :]
                break
        else:
            return line
    return None
