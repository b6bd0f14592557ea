"""Commands of the SDK: ``longpole config``."""

from __future__ import annotations

import json

import click

from longpole import config
from longpole.errors import LongpoleError


@click.command("config")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def show_config(as_json: bool) -> None:
    """Print every setting with its source."""
    path = config.find_file()
    tables: dict[str, dict[str, config.Setting]] = {}
    for name, defaults in _known_tables().items():
        tables[name] = config.settings(name, defaults, path)
    if as_json:
        document = {
            "schema": "longpole.config/1",
            "file": str(path) if path else None,
            "tables": {
                name: {k: {"value": s.shown, "source": s.source} for k, s in table.items()}
                for name, table in tables.items()
            },
        }
        print(json.dumps(document))
        return
    for name, table in tables.items():
        print(f"[{name}]")
        for key, setting in table.items():
            print(f"{key} = {json.dumps(setting.shown)}  # {setting.source}")


def _known_tables() -> dict[str, dict[str, config.Scalar | None]]:
    """The defaults of every wing that is installed."""
    from importlib import import_module

    homes = {
        "sdk": "longpole.settings",
        "collector": "longpole_collector.settings",
        "dashboard": "longpole_dashboard.settings",
        "engine": "longpole_engine.settings",
        "alerts": "longpole_analytics.alerts.settings",
    }
    tables: dict[str, dict[str, config.Scalar | None]] = {}
    for name, module in homes.items():
        try:
            tables[name] = dict(import_module(module).DEFAULTS)
        except ModuleNotFoundError as error:
            if error.name == module:
                raise LongpoleError(f"{module} is missing: reinstall longpole") from error
    return tables
