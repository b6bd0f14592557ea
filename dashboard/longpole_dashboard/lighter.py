"""A lighter script of charts: Plotly without the kinds of chart that no page draws.

Streamlit's charts come with all of Plotly in one script of 4.7 MB, and a browser parses all of it
before the first chart is there: half of what an Overview costs it. In the script each of Plotly's
files is a function of its own (esbuild's CommonJS and ES modules, named by their paths), called
by those that need it. What ``lib/index.js`` registers is cut down to what is drawn here, and the
functions that are then called by nobody are emptied.

Nothing is guessed: unless every function is found whole, and the list of what is registered as it
is expected, the script stays as it is.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

DRAWN: Final = frozenset({"bar", "heatmap"})
"""The kinds of traces that the figures have, besides ``scatter``, which is always there."""
HINT: Final = "//# allFunctionsCalledOnLoad\n"
"""Has Chromium compile a script while it is fetched instead of when it runs; others skip it."""

_CHAR: Final = re.compile(r"[\"'`/{}]")
_STRING: Final = {
    '"': re.compile(r'"(?:[^"\\\n]|\\.)*"', re.DOTALL),
    "'": re.compile(r"'(?:[^'\\\n]|\\.)*'", re.DOTALL),
}
_TEMPLATE: Final = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(`|\$\{)", re.DOTALL)
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_REGEX: Final = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/")
_BEFORE_REGEX: Final = re.compile(
    r"(?:[(,=:\[!&|?{};+*%~^<>-]|\b(?:return|typeof|case|else|void|in))$"
)
_MODULE: Final = re.compile(r'([\w$]+)=[\w$]+\(\{"([^"]+)"\(([^)]*)\)\{')
_REGISTERED: Final = re.compile(
    r'[\w$]+\(\{"lib/index\.js"\([^)]*\)\{[^{}]*?\.register\(\[((?:[\w$]+\(\),?)+)\]\)'
)
_CALL: Final = re.compile(r"(?<![\w$.])([\w$]+)\(\)")


class _Module(NamedTuple):
    """One of Plotly's files: its function's name, its path, and where its braces stand."""

    name: str
    path: str
    start: int
    end: int


def lighter(script: str, drawn: Iterable[str] = DRAWN) -> str | None:
    """The script with no more than these kinds of traces; ``None`` if it is not as expected.

    Args:
        script: that defines Streamlit's chart.
        drawn: kinds of traces.
    """
    registered = _REGISTERED.search(script)
    braces = None if registered is None else _braces(script)
    if registered is None or braces is None:
        return None
    modules = _modules(script, braces)
    names = [call.removesuffix("()") for call in registered[1].split(",")]
    wanted = {f"lib/{kind}.js" for kind in drawn}
    if modules is None or not {*names} <= modules.keys():
        return None
    kept = [name for name in names if modules[name].path in wanted]
    if len(kept) != len(wanted):
        return None
    called = ",".join(f"{name}()" for name in kept)
    needed = _needed(script, modules, registered.span(1), kept)
    edits = [(*registered.span(1), called)]
    edits += [
        (module.start, module.end, f'throw Error("{module.path} is left out")')
        for module in modules.values()
        if module.name not in needed and '"' not in module.path and "\\" not in module.path
    ]
    return HINT + _edited(script, edits)


def _modules(script: str, braces: dict[int, int]) -> dict[str, _Module] | None:
    found: dict[str, _Module] = {}
    for match in _MODULE.finditer(script):
        start = match.end() - 1
        end = braces.get(start)
        if end is None or not script.startswith("}})", end) or match[1] in found:
            return None
        found[match[1]] = _Module(match[1], match[2], start + 1, end)
    return found


def _needed(
    script: str, modules: dict[str, _Module], registered: tuple[int, int], kept: list[str]
) -> set[str]:
    """The functions that are called, by whatever is no function of the kind or by another one."""
    ordered = sorted(modules.values(), key=lambda module: module.start)
    todo, at = list(kept), 0
    for place in [*((m.start, m.end) for m in ordered), (len(script), 0)]:
        between = script[at : place[0]]
        if at <= registered[0] < place[0]:
            between = script[at : registered[0]] + script[registered[1] : place[0]]
        todo += _CALL.findall(between)
        at = place[1]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name in modules and name not in found:
            found.add(name)
            todo += _CALL.findall(script, modules[name].start, modules[name].end)
    return found


def _edited(script: str, edits: list[tuple[int, int, str]]) -> str:
    parts, at = [], 0
    for start, end, text in sorted(edits):
        parts += [script[at:start], text]
        at = end
    return "".join([*parts, script[at:]])


def _braces(script: str) -> dict[int, int] | None:
    """Where each opening brace is closed; ``None`` if they do not match."""
    found: dict[int, int] = {}
    opened: list[tuple[int, bool]] = []
    at = 0
    while (match := _CHAR.search(script, at)) is not None:
        char, start = match[0], match.start()
        at = start + 1
        if char == "{":
            opened.append((start, False))
        elif char == "}":
            if not opened:
                return None
            begun, is_template = opened.pop()
            found[begun] = start
            if is_template:
                at = _in_template(script, at, opened)
        elif char == "`":
            at = _in_template(script, at, opened)
        elif char == "/":
            at = _after_slash(script, start)
        else:
            string = _STRING[char].match(script, start)
            at = -1 if string is None else string.end()
        if at < 0:
            return None
    return None if opened else found


def _in_template(script: str, at: int, opened: list[tuple[int, bool]]) -> int:
    """The end of a template's text, where a value in it begins or it is over; -1 without one."""
    match = _TEMPLATE.match(script, at)
    if match is None:
        return -1
    if match[1] == "${":
        opened.append((match.end() - 1, True))
    return match.end()


def _after_slash(script: str, start: int) -> int:
    """The end of a comment or of a regular expression; of a division the next character."""
    comment = _COMMENT.match(script, start)
    if comment is not None:
        return comment.end()
    if _BEFORE_REGEX.search(script[max(0, start - 8) : start].rstrip()[-7:]) is None:
        return start + 1
    regex = _REGEX.match(script, start)
    return start + 1 if regex is None else regex.end()
