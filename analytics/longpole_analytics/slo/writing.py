"""Objectives written out again: as OpenSLO v1, or as tables of ``longpole.toml``."""

import json
from collections.abc import Sequence
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from longpole.errors import UsageError
from longpole_analytics.slo.objectives import (
    CANCELLED,
    MIN_BAD,
    OUTCOMES,
    SCORES,
    Floor,
    Objective,
    Rule,
    default_rules,
    span,
)
from longpole_analytics.slo.openslo import PREFIX, TARGET, VERSION

SERVICE: Final = "longpole"
"""OpenSLO wants the name of a service; who owns an objective stands with its source."""


def to_openslo(objectives: Sequence[Objective]) -> str:
    """Objectives as OpenSLO v1 YAML, which ``openslo.read`` takes back.

    Raises:
        UsageError: an id that is no name in OpenSLO.
    """
    documents: list[dict[str, Any]] = []
    for objective in objectives:
        documents += _documents(objective)
    text: str = yaml.safe_dump_all(
        documents, sort_keys=False, allow_unicode=True, explicit_start=True
    )
    return text


def to_toml(objectives: Sequence[Objective]) -> str:
    """Objectives as tables ``[slo.NAME]``, which ``objectives.from_tables`` takes back."""
    return "\n".join(_table(objective) for objective in objectives)


# --- OpenSLO ------------------------------------------------------------------------------------
def _documents(objective: Objective) -> list[dict[str, Any]]:
    if not objective.id.replace("-", "").isalnum() or objective.id != objective.id.lower():
        raise UsageError(
            f"objective '{objective.id}': a name in OpenSLO has small letters, digits and '-' only"
        )
    policies = (
        [] if objective.rules == default_rules(objective.period_min) else _policies(objective)
    )
    target: dict[str, Any] = {"displayName": objective.text}
    about = _facts(objective)
    if objective.metric in OUTCOMES:
        metric: dict[str, Any] = {
            "ratioMetric": {
                "counter": True,
                "good": _metric_source({"metric": objective.metric}),
                "total": _metric_source(about),
            }
        }
    else:
        metric = {"thresholdMetric": _metric_source({"metric": objective.metric} | about)}
        target["op"] = "gte" if objective.metric in SCORES else "lte"
        target["value"] = objective.threshold
    spec: dict[str, Any] = {"description": objective.description} if objective.description else {}
    spec |= {
        "service": SERVICE,
        "indicator": {"metadata": {"name": f"{objective.id}-indicator"}, "spec": metric},
        "timeWindow": [{"duration": span(objective.period_min), "isRolling": True}],
        "budgetingMethod": "Occurrences",
        "objectives": [target | {"target": objective.target}],
    }
    if policies:
        spec["alertPolicies"] = [policy["metadata"]["name"] for policy in policies]
    return [_object("SLO", {"name": objective.id}, spec), *policies]


def _facts(objective: Objective) -> dict[str, object]:
    """What a form has beside metric, threshold, target and period; only what is said."""
    told: dict[str, object] = {
        "where": objective.where,
        "class": objective.task_class,
        "owner": objective.owner,
        "runbook": objective.runbook,
        "cancelled": None if objective.cancelled == CANCELLED[0] else objective.cancelled,
        "min_bad": None if objective.min_bad == MIN_BAD else objective.min_bad,
        "floors": [_floor(floor) for floor in objective.floors],
    }
    return {key: value for key, value in told.items() if value not in (None, [])}


def _floor(floor: Floor) -> dict[str, object]:
    threshold = {} if floor.threshold is None else {"threshold": floor.threshold}
    return {"metric": floor.metric, **threshold, "target": floor.target}


def _policies(objective: Objective) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, rule in enumerate(objective.rules, start=1):
        for length, window in (("long", rule.long_min), ("short", rule.short_min)):
            name = f"{objective.id}-{number}-{length}"
            metadata = {
                "name": name,
                "annotations": {
                    f"{PREFIX}rule": f"{objective.id}-{number}",
                    f"{PREFIX}window": length,
                    f"{PREFIX}keep": span(rule.keep_min),
                },
            }
            condition = {
                "kind": "burnrate",
                "op": "gt",
                "threshold": rule.factor,
                "lookbackWindow": span(window),
                "alertAfter": span(rule.for_min + 1),
            }
            inner = {
                "kind": "AlertCondition",
                "metadata": {"name": f"{name}-burn"},
                "spec": {"severity": rule.severity, "condition": condition},
            }
            spec = {
                "alertWhenNoData": False,
                "alertWhenResolved": True,
                "alertWhenBreaching": True,
                "conditions": [inner],
                "notificationTargets": [{"targetRef": TARGET}],
            }
            found.append(_object("AlertPolicy", metadata, spec))
    return found


def _object(kind: str, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _metric_source(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metricSource": {"type": "longpole", "spec": spec}}


# --- TOML ---------------------------------------------------------------------------------------
def _table(objective: Objective) -> str:
    facts: dict[str, object] = {
        "metric": objective.metric,
        "threshold": objective.threshold,
        "target": objective.target,
        "period": span(objective.period_min),
        "description": objective.description,
        **_facts(objective),
        "rules": []
        if objective.rules == default_rules(objective.period_min)
        else [_rule(rule) for rule in objective.rules],
    }
    lines = [f"{key} = {_value(value)}" for key, value in facts.items() if value not in (None, [])]
    name = objective.id if "." not in objective.id else json.dumps(objective.id)
    return "\n".join([f"[slo.{name}]", *lines, ""])


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "severity": rule.severity,
        "long": span(rule.long_min),
        "short": span(rule.short_min),
        "factor": rule.factor,
        "for": span(rule.for_min),
        "keep": span(rule.keep_min),
    }


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_value(each)}' for key, each in value.items())} }}"
    # a JSON text is a TOML text too, but for the delete character
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
