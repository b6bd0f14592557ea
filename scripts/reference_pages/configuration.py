"""The tables of ``longpole.toml``: keys, defaults, and what the code says of them."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import click

from reference_pages.base import attributes, below, code, lowered, page, spoken, table
from reference_pages.command_line import commands

TABLES = {
    "sdk": ("longpole.settings", "Settings", "of the application, `longpole.init` and `wrap`"),
    "collector": ("longpole_collector.settings", "Settings", "of `collect`, `serve`, and who asks"),
    "dashboard": ("longpole_dashboard.settings", "", "of `serve` and `open`"),
    "engine": ("longpole_engine.settings", "", "of `engine serve`"),
    "alerts": ("longpole_analytics.alerts.settings", "AlertSettings", "of the watch"),
    "report": ("longpole_analytics.report.settings", "ReportSettings", "of the weekly report"),
    "gate": ("longpole_analytics.gates.config", "", "of `gate`"),
}
"""Table -> the module of its defaults, the class whose docstring tells the keys, who reads it."""

THRESHOLDS = {
    "advisor": "longpole_analytics.advisor._thresholds:AdvisorRules",
    "audit": "longpole_analytics.audit:AuditRules",
    "cache": "longpole_analytics.cache.rules:CacheRules",
    "causes": "longpole_analytics.attribution:CauseRules",
    "changes": "longpole_analytics.changes:ChangeRules",
    "compare": "longpole_analytics.scorecard.rules:CardRules",
    "measures": "longpole_analytics.measures:MeasureRules",
    "queueing": "longpole_analytics.queueing:QueueRules",
    "serial": "longpole_analytics.serial:SerialRules",
    "shapes": "longpole_analytics.shapes.base:ShapeRules",
}
"""The tables ``[analytics.NAME]`` and their thresholds."""

SAID = {
    "collector.db": "data folder",
    "collector.http": "where OTLP/HTTP and queries are served",
    "collector.grpc": "where OTLP/gRPC is served",
    "collector.max_body_bytes": "largest request that is taken",
    "collector.max_queue_bytes": "taken and not yet stored at most; more is answered 429",
    "collector.body_timeout_s": "time a sender has for one body",
    "collector.query_rows": "rows of an answer over HTTP at most",
    "collector.query_timeout_s": "time a query has",
    "dashboard.host": "address of the dashboard",
    "dashboard.port": "its port; a taken one gives way to the next free one",
    "dashboard.allowed_hosts": "names besides this machine's that requests may be addressed to, "
    "comma-separated",
    "dashboard.login": "who is let in: `password`, `proxy`, `oidc` or `none`",
    "dashboard.trusted_proxies": "addresses and networks, comma-separated, whose headers are "
    "believed",
    "dashboard.user_header": "the header in which a proxy names the user",
    "dashboard.oidc_issuer": "address of the OpenID provider",
    "dashboard.oidc_client_id": "this dashboard's id there",
    "dashboard.oidc_client_secret": "and its secret; better given by reference",
    "dashboard.oidc_claim": "what of the user is taken for the name",
    "dashboard.tls_certificate": "file of the certificate, where the dashboard speaks TLS itself",
    "dashboard.tls_key_file": "file of its private key",
    "dashboard.jaeger_url": "a Jaeger in which the same traces can be opened besides",
    "dashboard.tempo_url": "a Tempo, likewise",
    "dashboard.ttft_objective_ms": "TTFT that a workflow's slowest call should stay under; without "
    "it the slowest of each route are slow",
    "alerts.openslo": "further objectives: OpenSLO files, comma-separated, relative to the file",
    "alerts.repeat": "after that those who were told are told again while it goes on",
    "gate.since": "of a folder or a collector this last time counts",
    "gate.where": "an SQL condition on the requests",
    "engine.kv_format": "format of keys and values: fp32, bf16, int8",
    "engine.batching": "continuous or static",
    "engine.preemption": "of a request that must give way: recompute or swap",
    "engine.eviction": "which cached pages go first: session or lru",
    "engine.max_model_tokens": "longest sequence",
    "engine.chunked_prefill": "long prompts share steps with others",
    "engine.max_queue": "requests that wait at most; more are refused",
    "engine.deadline_s": "a request not done by then is given up; 0 is never",
    "engine.kv_pages": "pages for keys and values; 0 is by the sequences",
    "engine.prefix_cache": "keep pages of finished prompts for the next",
    "engine.prefix_cache_mb": "memory for them",
    "engine.num_threads": "threads of a prompt",
    "engine.num_decode_threads": "threads of a decode step",
    "engine.dynamic_drafts": "draft fewer while few are accepted",
    "engine.exit_layers": "layers of the model that draft for `self`; 0 is the model's own choice",
    "engine.regret_budget": "probability by which a draft may be accepted wrongly; 0 is exact",
    "engine.regret_exceptions": "such drafts that an answer may hold",
    "engine.regret_routes": "routes it may be used on, comma-separated",
    "engine.max_body_bytes": "largest request that is taken",
    "engine.drain_s": "time that running requests have when the engine stops",
    "engine.otlp_endpoint": "where spans go; its default gives way to the environment's "
    "`OTEL_EXPORTER_OTLP_ENDPOINT`",
}
"""What keys mean whose code only names them."""


def settings_rows(name: str, module: str, told_by: str) -> list[tuple[str, ...]]:
    """The keys of a table, with what the code says of each."""
    home: Any = import_module(module)
    told = attributes(getattr(home, told_by)) if told_by else {}
    told |= {key: spoken(text) for key, text in below(module) if text}
    if name == "engine":
        told |= engine_options()
    rows: list[tuple[str, ...]] = []
    for key, default in home.DEFAULTS.items():
        meaning = SAID.get(f"{name}.{key}") or told.get(key, "")
        rows.append((f"`{key}`", code(default), lowered(meaning)))
    return rows


def engine_options() -> dict[str, str]:
    """What the options of ``engine serve`` say, by key."""
    serve = next(command for words, command, _ in commands() if words == "engine serve")
    found = {}
    for option in serve.params:
        if isinstance(option, click.Option):
            choices = getattr(option.type, "choices", ())
            text = re.sub(r"\s*\[.*?\]", "", option.help or "").strip().rstrip(".")
            found[option.name or ""] = text or "one of " + ", ".join(choices)
    return found


def thresholds(name: str, where: str) -> str:
    """The thresholds of one command, with what they mean."""
    module, _, which = where.partition(":")
    rules = getattr(import_module(module), which)()

    def rows(of: Any) -> Iterator[tuple[str, str, str]]:
        told = attributes(type(of))
        for field in fields(of):
            value = getattr(of, field.name)
            if is_dataclass(value):
                yield from rows(value)
            else:
                yield f"`{field.name}`", code(value), lowered(told.get(field.name, ""))

    return f"### `[analytics.{name}]`\n\n" + table(("key", "default", "what"), rows(rules))


def configuration() -> str:
    """Every table of ``longpole.toml``."""
    from longpole_collector.settings import ProjectSettings

    parts = []
    for name, (module, told_by, who) in TABLES.items():
        head = f"## `[{name}]`\n\nOptions {who}.\n\n"
        rows = settings_rows(name, module, told_by)
        parts.append(head + table(("key", "default", "what"), rows))
        if name == "collector":
            told = dict(below(module))
            own = [
                (f"`{each.name}`", code(each.default), lowered(spoken(told[each.name])))
                for each in fields(ProjectSettings)
            ]
            head = "### `[collector.projects.NAME]`\n\nOf one project.\n\n"
            parts.append(head + table(("key", "default", "what"), own))
    parts.append(
        "## Tables of their own pages\n\n"
        "`[slo.NAME]`: [objectives](../slo.md#write-one). `[budget.ROUTE]`: "
        "[budgets](../analysis.md#budgets-per-segment). `[prices.MODEL]`: "
        "[prices](../cost-and-cache.md#prices). `[alerts.sinks.NAME]`: "
        "[sinks](../alerts.md#sinks). `[gate.checks.NAME]` and `[gate.rollback]`: "
        "[gates](../gates.md#checks). `[collector.sampling]`: "
        "[sampling](../sampling.md#switch-it-on).\n\n"
        "## Thresholds of the analytics\n"
    )
    parts += [thresholds(name, where) for name, where in THRESHOLDS.items()]
    intro = (
        "`longpole.toml` is looked for in the working directory and upward. A flag wins over the "
        "environment (`LONGPOLE_SDK_ENDPOINT` is `endpoint` of `[sdk]`, and so on), that over the "
        "file, that over the default. A key or table that nobody knows "
        "is refused, with the nearest one named. Text may refer to what does not belong there: "
        '`"${env:NAME}"`, `"${file:/run/secrets/name}"`. `longpole config` prints every value '
        "with its source, and secrets as `***`."
    )
    return page("Configuration", intro, *parts)
