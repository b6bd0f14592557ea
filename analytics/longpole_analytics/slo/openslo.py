"""Objectives in OpenSLO v1 (https://github.com/OpenSLO/OpenSLO): the part of it that we keep.

An ``SLO`` with a rolling window and the budgeting method ``Occurrences``; its indicator is a
``thresholdMetric`` or a ``ratioMetric`` whose source has the type ``longpole`` and our filter as
its spec. Alert conditions of OpenSLO have one window, so a rule of two is two policies that an
annotation pairs. What the format has and we do not is refused by its name, never skipped.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from longpole.errors import UsageError
from longpole_analytics.slo.objectives import (
    SCORES,
    Objective,
    apart,
    from_tables,
    minutes,
    span,
)

VERSION: Final = "openslo/v1"
PREFIX: Final = "longpole.dev/"
"""Of our annotations."""
MAX_BYTES: Final = 1 << 20
TARGET: Final = "longpole"
"""Notification target of our policies: where alerts go is said elsewhere."""
_FACTS: Final = ("where", "class", "owner", "runbook", "cancelled", "min_bad", "floors")
_SEEN: Final = "is not supported"


def read(text: str, origin: str) -> list[Objective]:
    """The objectives of a YAML text, in their order.

    Args:
        text: one document or several, or lists of them.
        origin: where it stands, for messages.

    Raises:
        UsageError: no YAML, no OpenSLO v1, or a part of it that is not supported.
    """
    if len(text.encode()) > MAX_BYTES:
        raise UsageError(f"{origin}: over {MAX_BYTES >> 20} MiB: split it")
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{origin}: no YAML that can be read: {_one_line(error)}") from error
    objects = list(_objects(documents, origin))
    policies = {_name(each, origin): each for each in objects if each["kind"] == "AlertPolicy"}
    used: set[str] = set()
    found = [_objective(each, policies, used, origin) for each in objects if each["kind"] == "SLO"]
    unused = sorted(set(policies) - used)
    if unused:
        raise UsageError(f"{origin}: AlertPolicy '{unused[0]}' belongs to no SLO: name it in one")
    apart([(objective, origin) for objective in found])
    return found


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """A safe loader that has no aliases (they can unfold without end) and no key twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read: write it out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.YAMLError(f"the key '{twice}' stands twice, {node.start_mark}")
        return super().construct_mapping(node, deep)


def _objects(documents: Iterable[object], origin: str) -> Iterable[dict[str, Any]]:
    for document in documents:
        for each in document if isinstance(document, list) else [document]:
            if each is None:
                continue
            if not isinstance(each, dict):
                raise UsageError(f"{origin}: expected objects of OpenSLO, got '{_one_line(each)}'")
            if each.get("apiVersion") != VERSION:
                raise UsageError(
                    f"{origin}: apiVersion '{each.get('apiVersion')}' {_SEEN}: write {VERSION}"
                )
            if each.get("kind") not in ("SLO", "AlertPolicy"):
                raise UsageError(
                    f"{origin}: kind '{each.get('kind')}' {_SEEN}: write SLO, with its indicator "
                    "in it, and AlertPolicy, with its condition in it"
                )
            yield each


def _objective(
    given: dict[str, Any], policies: Mapping[str, dict[str, Any]], used: set[str], origin: str
) -> Objective:
    name = _name(given, origin)
    where = f"{origin}: SLO '{name}'"
    spec = _table(given, "spec", where)
    _only(
        spec, ("description", "service", "indicator", "timeWindow", "budgetingMethod",
               "objectives", "alertPolicies"), where,
    )  # fmt: skip
    if spec.get("budgetingMethod") != "Occurrences":
        raise UsageError(
            f"{where}: budgetingMethod '{spec.get('budgetingMethod')}' {_SEEN}: write Occurrences"
        )
    _annotations(given, where, ())
    table: dict[str, object] = {}
    if spec.get("description"):
        table["description"] = spec["description"]
    target = _target(spec, where)
    table |= {"period": _period(spec, where), "target": target["target"]}
    table |= _indicator(spec, target, where)
    named = _texts(spec.get("alertPolicies", []), f"{where} alertPolicies")
    rules = _rules(named, policies, where)
    used |= set(named)
    if rules:
        table["rules"] = rules
    return from_tables({name: table}, origin)[0]


def _target(spec: dict[str, Any], where: str) -> dict[str, Any]:
    targets = spec.get("objectives")
    if not isinstance(targets, list) or len(targets) != 1 or not isinstance(targets[0], dict):
        raise UsageError(f"{where}: expected one entry in objectives: write an SLO for each")
    target = targets[0]
    for key in ("timeSliceTarget", "timeSliceWindow", "indicator", "indicatorRef",
                "compositeWeight", "targetPercent"):  # fmt: skip
        if key in target:
            raise UsageError(f"{where}: objectives {key} {_SEEN}")
    _only(target, ("displayName", "op", "value", "target"), f"{where} objectives")
    return target


def _period(spec: dict[str, Any], where: str) -> object:
    windows = spec.get("timeWindow")
    if not isinstance(windows, list) or len(windows) != 1 or not isinstance(windows[0], dict):
        raise UsageError(
            f"{where}: expected one timeWindow, as [{{duration: 30d, isRolling: true}}]"
        )
    if "calendar" in windows[0] or windows[0].get("isRolling") is not True:
        raise UsageError(f"{where}: a calendar timeWindow {_SEEN}: write isRolling: true")
    _only(windows[0], ("duration", "isRolling"), f"{where} timeWindow")
    return windows[0].get("duration")


def _indicator(spec: dict[str, Any], target: dict[str, Any], where: str) -> dict[str, object]:
    indicator = _table(_table(spec, "indicator", where), "spec", f"{where} indicator")
    _only(indicator, ("description", "ratioMetric", "thresholdMetric"), f"{where} indicator")
    if ("ratioMetric" in indicator) == ("thresholdMetric" in indicator):
        raise UsageError(f"{where}: an indicator is one of ratioMetric and thresholdMetric")
    if "thresholdMetric" in indicator:
        metric = _table(indicator, "thresholdMetric", where)
        found = _source(metric, ("metric", *_FACTS), f"{where} thresholdMetric")
        op = "gte" if found.get("metric") in SCORES else "lte"
        if target.get("op") != op:
            raise UsageError(f"{where}: objectives op '{target.get('op')}' {_SEEN}: write {op}")
        return found | {"threshold": target.get("value")}
    if "op" in target or "value" in target:
        raise UsageError(f"{where}: objectives op and value belong to a thresholdMetric")
    ratio = _table(indicator, "ratioMetric", where)
    _only(ratio, ("counter", "good", "total"), f"{where} ratioMetric")
    if ratio.get("counter") is False:
        raise UsageError(f"{where}: ratioMetric counter: false {_SEEN}: events are counted")
    good = _source(_table(ratio, "good", where), ("metric", "threshold", "where"), where)
    total = _source(_table(ratio, "total", where), _FACTS, where)
    if good.get("where", total.get("where")) != total.get("where"):
        raise UsageError(f"{where}: good and total have a different 'where': it says who counts")
    return good | total


def _source(metric: dict[str, Any], keys: Sequence[str], where: str) -> dict[str, object]:
    _only(metric, ("metricSource",), where)
    source = _table(metric, "metricSource", where)
    _only(source, ("type", "spec"), f"{where} metricSource")
    if source.get("type") != "longpole":
        raise UsageError(
            f"{where}: metricSource type '{source.get('type')}' {_SEEN}: write longpole"
        )
    spec = source.get("spec") or {}
    if not isinstance(spec, dict):
        raise UsageError(f"{where} metricSource spec: expected a table")
    _only(spec, keys, f"{where} metricSource spec")
    return dict(spec)


def _rules(
    named: Sequence[str], policies: Mapping[str, dict[str, Any]], where: str
) -> list[dict[str, object]]:
    """Rules from policies: those whose annotation ``rule`` is the same are two windows of one."""
    pairs: dict[str, dict[str, dict[str, object]]] = {}
    for name in named:
        if name not in policies:
            raise UsageError(f"{where}: alertPolicies '{name}' is not in the file")
        here = f"{where} AlertPolicy '{name}'"
        facts = _annotations(policies[name], here, ("rule", "window", "keep"))
        rule, length = facts.get("rule"), facts.get("window")
        if rule is None or length not in ("long", "short"):
            raise UsageError(
                f"{here}: a rule with one window {_SEEN}: pair two policies by the annotations "
                f"{PREFIX}rule (a name) and {PREFIX}window (long, short)"
            )
        found = _condition(policies[name], here) | {"keep": facts.get("keep", "0m")}
        if pairs.setdefault(rule, {}).setdefault(length, found) is not found:
            raise UsageError(f"{here}: rule '{rule}' has its {length} window twice")
    rules: list[dict[str, object]] = []
    for rule, pair in pairs.items():
        if len(pair) != 2:
            raise UsageError(f"{where}: rule '{rule}' lacks its long or short window")
        long, short = (dict(pair[length]) for length in ("long", "short"))
        windows = {"long": long.pop("window"), "short": short.pop("window")}
        if long != short:
            raise UsageError(
                f"{where}: the two windows of rule '{rule}' differ in more than length"
            )
        rules.append(long | windows)
    return rules


def _condition(policy: dict[str, Any], where: str) -> dict[str, object]:
    spec = _table(policy, "spec", where)
    for key, only in (("alertWhenNoData", False), ("alertWhenResolved", True),
                      ("alertWhenBreaching", True),
                      ("notificationTargets", [{"targetRef": TARGET}])):  # fmt: skip
        if spec.get(key, only) != only:
            raise UsageError(f"{where}: {key} '{_one_line(spec[key])}' {_SEEN}: write {only}")
    _only(spec, ("description", "conditions", "alertWhenBreaching", "alertWhenNoData",
                 "alertWhenResolved", "notificationTargets"), where)  # fmt: skip
    conditions = spec.get("conditions")
    if not isinstance(conditions, list) or len(conditions) != 1:
        raise UsageError(f"{where}: expected one condition")
    if not isinstance(conditions[0], dict) or "conditionRef" in conditions[0]:
        raise UsageError(f"{where}: conditionRef {_SEEN}: write the condition in the policy")
    inner = _table(conditions[0], "spec", where)
    _only(inner, ("description", "severity", "condition"), where)
    condition = _table(inner, "condition", where)
    _only(condition, ("kind", "op", "threshold", "lookbackWindow", "alertAfter"), where)
    if condition.get("kind") != "burnrate":
        raise UsageError(f"{where}: condition kind '{condition.get('kind')}' {_SEEN}: burnrate is")
    if condition.get("op", "gt") != "gt":
        raise UsageError(f"{where}: condition op '{condition['op']}' {_SEEN}: write gt")
    return {
        "severity": inner.get("severity"),
        "factor": condition.get("threshold"),
        "window": condition.get("lookbackWindow"),
        # met in one minute is met for one minute: no further ones
        "for": span(max(minutes(condition.get("alertAfter", "1m"), f"{where} alertAfter") - 1, 0)),
    }


def _annotations(given: dict[str, Any], where: str, known: Sequence[str]) -> dict[str, str]:
    """Our annotations without their prefix; those of others are theirs."""
    found = _table(given, "metadata", where).get("annotations") or {}
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise UsageError(f"{where} annotations: expected texts")
    ours = {str(k).removeprefix(PREFIX): v for k, v in found.items() if str(k).startswith(PREFIX)}
    _only(ours, known, f"{where} annotations {PREFIX}")
    return ours


def _name(given: dict[str, Any], origin: str) -> str:
    where = f"{origin}: {given.get('kind')}"
    _only(given, ("apiVersion", "kind", "metadata", "spec"), where)
    metadata = _table(given, "metadata", where)
    _only(metadata, ("name", "displayName", "labels", "annotations"), f"{where} metadata")
    if not isinstance(metadata.get("name"), str):
        raise UsageError(f"{where}: metadata has no name")
    return str(metadata["name"])


def _table(given: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    found = given.get(key)
    if not isinstance(found, dict):
        reference = f"{key}Ref" in given
        said = (
            f"{key}Ref {_SEEN}: write the {key} here" if reference else f"no {key} that is a table"
        )
        raise UsageError(f"{where}: {said}")
    return found


def _only(given: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    for key in given:
        if key not in keys:
            hint = ": write the indicator here" if key == "indicatorRef" else ""
            raise UsageError(f"{where}: {key} {_SEEN}{hint}; known: {', '.join(keys)}")


def _texts(given: object, where: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise UsageError(f"{where}: expected names of policies that stand in the file")
    return given


def _one_line(value: object) -> str:
    return " ".join(str(value).split())[:200]
