"""What the pages of the reference share: Markdown, and what docstrings say."""

import ast
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLE = "sample_data/demo.parquet"


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += [
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows
    ]
    return "\n".join(lines) + "\n"


def page(title: str, intro: str, *parts: str) -> str:
    """A page that says where it comes from."""
    head = f"<!-- Made by scripts/make-reference; do not edit. -->\n\n# {title}\n\n{intro}\n"
    return head + "".join(f"\n{part.rstrip()}\n" for part in parts)


def code(value: object) -> str:
    """A value as it would be written in the file; nothing for none."""
    if value is None or value in ("", (), {}):
        return ""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key} = {json.dumps(each)}" for key, each in value.items())
        return f"`{{ {inner} }}`"
    return f"`{json.dumps(value)}`"


def spoken(docstring: str | None) -> str:
    """A docstring's first sentence or two on one line, in Markdown."""
    text = " ".join((docstring or "").split("\n\n")[0].split())
    return re.sub(r":\w+:`~?([^`<]+?)(?: <[^>]*>)?`", r"`\1`", text).replace("``", "`").rstrip(".")


def lowered(text: str) -> str:
    """The text as it goes on in a table: a word that begins it in lower case, a name as it is."""
    return text[0].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def attributes(of: type) -> dict[str, str]:
    """What a class's docstring says of each attribute."""
    text = inspect.getdoc(of) or ""
    found: dict[str, str] = {}
    for part in text.split("Attributes:\n")[1:]:
        body = "\n".join(line[4:] for line in part.split("\n\n")[0].splitlines())
        for each in re.split(r"\n(?=\w+: )", body):
            name, _, meaning = each.partition(": ")
            found[name.strip()] = spoken(meaning)
    return found


def below(module: str) -> Iterator[tuple[str, str]]:
    """Names of a module, at any depth, with the text that stands right below each."""
    path = inspect.getsourcefile(import_module(module)) or ""
    for node in ast.walk(ast.parse(Path(path).read_text("utf-8"))):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for this, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(this, ast.AnnAssign) or not isinstance(this.target, ast.Name):
                continue
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            yield this.target.id, str(after.value.value) if is_text else ""
