"""``longpole migrate``."""

import json

import click


@click.command()
@click.option("--from", "source", required=True, help="A data folder, or clickhouse://...")
@click.option("--to", "target", required=True, help="The other one of the two.")
@click.option("--merge", "is_merging", is_flag=True, help="Keep what else the target has of a day.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def migrate(source: str, target: str, is_merging: bool, as_json: bool) -> None:
    """Copy all spans from a data folder to ClickHouse or back, compare day by day, and settle.

    The source stays as it is. What was stopped or killed goes on where it was when it is started
    again. Exit code 2 if the target has other spans of a day, 1 if a day differs afterwards.
    """
    from longpole_collector.migrate import migrate

    days = migrate(
        source, target, is_merging=is_merging, told=lambda text: click.echo(text, err=True)
    )
    if as_json:
        rows = [day._asdict() for day in days]
        click.echo(json.dumps({"schema": "longpole.migrate/1", "days": rows}))
        return
    for day in days:
        more = f"  elsewhere {day.num_elsewhere}" if day.num_elsewhere else ""
        more += f"  more there {day.num_more}" if day.num_more else ""
        click.echo(
            f"{day.day}  spans {day.num_spans}  copied {day.num_copied}  "
            f"checksum {day.checksum}{more}"
        )
