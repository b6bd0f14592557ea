"""The command line: every command's help, and the exit codes."""

import inspect
from collections.abc import Iterator
from typing import Any

import click

from reference_pages.base import lowered, page, spoken, table


def commands() -> Iterator[tuple[str, click.Command, str]]:
    """Every command with its words and the extra it needs, groups before their members."""
    from longpole.cli import COMMANDS, main

    def walk(words: str, command: click.Command, extra: str) -> Iterator[Any]:
        yield words, command, extra
        if isinstance(command, click.Group):
            for name, inner in sorted(command.commands.items()):
                yield from walk(f"{words} {name}", inner, extra)

    for name, (_, _, extra) in COMMANDS.items():
        command = main.get_command(click.Context(main), name)
        if command is not None:
            yield from walk(name, command, extra)


def cli() -> str:
    """The help of every command."""
    from longpole.cli import main

    above = click.Context(main, **main.context_settings)
    parts = []
    for words, command, extra in commands():
        command._help_option = None  # click keeps the one that the first caller's context gave
        context = click.Context(command, above, f"longpole {words}", terminal_width=100)
        depth = "#" * (2 + words.count(" "))
        needs = (
            f"Needs `pip install 'longpole[{extra}]'`.\n\n" if extra and " " not in words else ""
        )
        parts.append(
            f"{depth} longpole {words}\n\n{needs}```text\n{command.get_help(context)}\n```"
        )
    intro = "Every command with its options, as `--help` prints them. What codes they end with: "
    return page("Command line", intro + "[exit codes](exit-codes.md).", *parts)


def exit_codes() -> str:
    """The codes, by the errors that carry them."""
    from longpole import errors

    said: dict[int, list[str]] = {
        0: ["fine"],
        1: ["any other error"],
        3: ["an objective, a gate or a guardrail is broken"],
    }
    for each in vars(errors).values():
        is_kind = inspect.isclass(each) and issubclass(each, errors.LongpoleError)
        if is_kind and each is not errors.LongpoleError:
            said.setdefault(each.exit_code, []).append(lowered(spoken(each.__doc__)))
    rows = [(number, "; ".join(texts)) for number, texts in sorted(said.items())]
    return page(
        "Exit codes",
        'What every command ends with. In pipelines: 3 is a result, 4 an honest "not known".',
        table(("code", "meaning"), rows),
        "What 3 and 4 mean for one command: [slo](../slo.md#check), [compare](../compare.md), "
        "[gate](../gates.md). Errors are one sentence on stderr; `-v` before the command shows the "
        "traceback.",
    )
