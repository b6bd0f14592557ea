"""The ``longpole`` command: a switchboard.

The table below holds names, not imports, so ``longpole --help`` stays light and no arrow points
from the SDK up to the wings that implement the commands.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module

import click

from longpole.errors import LongpoleError

_DASHBOARD = "longpole_dashboard.commands"
_COLLECTOR = "longpole_collector.commands"

COMMANDS: dict[str, tuple[str, str, str]] = {
    "demo": (f"{_DASHBOARD}:demo", "a real model, a real workload, a planted fault", "all"),
    "serve": (f"{_DASHBOARD}:serve", "collector and dashboard", "dashboard"),
    "open": (f"{_DASHBOARD}:open_files", "the dashboard on files, nothing kept", "dashboard"),
    "users": (
        "longpole_dashboard.login.commands:users",
        "who may log in to the dashboard: add, link, list, remove",
        "dashboard",
    ),
    "explain": (
        "longpole_analytics.commands:explain",
        "where one trace's time went",
        "collector,analytics",
    ),
    "top": (
        "longpole_analytics.top_command:top",
        "ranked causes of slow requests",
        "collector,analytics",
    ),
    "shapes": (
        "longpole_analytics.shapes_command:shapes",
        "which latency shape each slice has",
        "collector,analytics",
    ),
    "whatif": (
        "longpole_analytics.whatif_command:whatif",
        "a stage faster: the quantiles then",
        "collector,analytics",
    ),
    "slo": (
        "longpole_analytics.slo_command:slo",
        "objectives: check, list, validate, export",
        "collector,analytics",
    ),
    "cache": (
        "longpole_analytics.cache_command:cache",
        "what caches are worth, why prompts miss",
        "collector,analytics",
    ),
    "compare": (
        "longpole_analytics.compare_command:compare",
        "a candidate against its baseline, as a gate",
        "collector,analytics",
    ),
    "routes": (
        "longpole_analytics.routes_command:routes",
        "rules of routing: check, choose, envelope, tiers, whatif",
        "collector,analytics",
    ),
    "slices": (
        "longpole_analytics.slices_command:slices",
        "quantiles by slice",
        "collector,analytics",
    ),
    "alerts": (
        "longpole_analytics.alerts_command:alerts",
        "alerts: list, test, ack, silence",
        "collector,analytics",
    ),
    "budgets": (
        "longpole_analytics.budgets_command:budgets",
        "stages against their budgets",
        "collector,analytics",
    ),
    "queueing": (
        "longpole_analytics.queueing_command:queueing",
        "load, saturation, capacity",
        "collector,analytics",
    ),
    "measures": (
        "longpole_analytics.measures_command:measures",
        "retries, cold starts, branches, guesses, drafts",
        "collector,analytics",
    ),
    "report": (
        "longpole_analytics.report_command:report",
        "the week in one file: HTML, Markdown, JSON",
        "collector,analytics",
    ),
    "gate": (
        "longpole_analytics.gate_command:gate",
        "checks for CI and rollback, as an exit code",
        "collector,analytics",
    ),
    "advise": (
        "longpole_analytics.advise_command:advise",
        "what to change first, and what it would save",
        "collector,analytics",
    ),
    "audit": (
        "longpole_analytics.audit_command:audit",
        "the application graded from its traces",
        "collector,analytics",
    ),
    "collect": (f"{_COLLECTOR}:collect", "the collector alone", "collector"),
    "import": (f"{_COLLECTOR}:import_files", "load files of traces", "collector"),
    "export": (f"{_COLLECTOR}:export_files", "write every span to a file", "collector"),
    "work": (
        "longpole_analytics.work_command:work",
        "settle a share of a ClickHouse store's traces",
        "collector,analytics,clickhouse",
    ),
    "migrate": (
        "longpole_collector.migrate_command:migrate",
        "from a data folder to ClickHouse and back",
        "collector,analytics,clickhouse",
    ),
    "query": (f"{_COLLECTOR}:query", "read-only SQL over the views", "collector"),
    "backup": (
        "longpole_collector.upkeep_commands:backup",
        "copy the stored spans into a folder",
        "collector",
    ),
    "prune": (
        "longpole_collector.upkeep_commands:prune",
        "drop what is old, too much, or a person's",
        "collector",
    ),
    "keys": ("longpole_collector.key_commands:keys", "who may send and read", "collector"),
    "doctor": (f"{_COLLECTOR}:doctor", "what is wrong on this machine, and the fix", "collector"),
    "engine": ("longpole_engine.commands:engine", "the reference engine", "engine"),
    "load": ("longpole_engine.load.commands:load", "send requests, open loop by default", "engine"),
    "lab": (
        "longpole_dashboard.lab.commands:lab",
        "every latency shape made here, and named",
        "all",
    ),
    "config": ("longpole.commands:show_config", "every setting with its source", ""),
}
"""Command -> (where it lives, one line, the extra it needs)."""

OURS = (
    "longpole",
    "longpole_collector",
    "longpole_analytics",
    "longpole_dashboard",
    "longpole_engine",
)


class Switchboard(click.Group):
    """A group that imports a command's module only when the command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself, imported now; ``None`` if unknown."""
        if cmd_name not in COMMANDS:
            return None
        where = COMMANDS[cmd_name][0]
        module, _, attribute = where.partition(":")
        try:
            command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise _explained(error, cmd_name) from error
        if not isinstance(command, click.Command):
            raise TypeError(f"{where} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with the nearest name suggested."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing a single command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line, _) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an error of ours becomes one sentence and its exit code."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise _explained(error, ctx.invoked_subcommand or "") from error
        except LongpoleError as error:
            if ctx.params.get("verbose"):
                raise
            click.echo(f"Error: {error}", err=True)
            sys.exit(error.exit_code)


def _explained(error: ModuleNotFoundError, command: str) -> Exception:
    """A third-party module that is missing becomes one sentence; one of ours is a bug."""
    missing = (error.name or "").partition(".")[0]
    if missing in OURS or command not in COMMANDS:
        return error
    extra = COMMANDS[command][2]
    return click.ClickException(
        f"`longpole {command}` needs {missing}: pip install 'longpole[{extra}]'"
    )


@click.group(cls=Switchboard, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
@click.version_option(package_name="longpole")
def main(verbose: bool) -> None:
    """Where the time to an accepted outcome went, for every LLM request."""
