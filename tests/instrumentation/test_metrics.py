"""The conventions' client metrics, through the meters the application has set up."""

from typing import Any

import openai
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader

import longpole
from longpole import metrics
from longpole.testing import Spans
from longpole.vocab import keys

MESSAGES: Any = [{"role": "user", "content": "x"}]
Points = dict[str, list[HistogramDataPoint]]


@pytest.fixture
def meters(monkeypatch: pytest.MonkeyPatch) -> Any:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr("opentelemetry.metrics.get_meter_provider", lambda: provider)
    monkeypatch.setattr(metrics, "_known", None)
    yield reader
    provider.shutdown()


def points(reader: InMemoryMetricReader) -> Points:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_a_call_is_told_by_every_metric_that_it_has(
    client: openai.OpenAI, spans: Spans, meters: Any
) -> None:
    list(client.chat.completions.create(model="plain", messages=MESSAGES, stream=True))
    found = points(meters)
    facts = dict(spans[0].attributes or {})
    (duration,) = found["gen_ai.client.operation.duration"]
    taken_s = (spans[0].end_time - spans[0].start_time) / 1e9
    assert duration.sum == pytest.approx(taken_s, abs=1e-6)
    where = dict(duration.attributes or {})
    assert where[keys.REQUEST_MODEL] == "plain"
    assert where[keys.RESPONSE_MODEL] == "plain-2026"
    assert (where[keys.PROVIDER], where[keys.OPERATION]) == ("openai", "chat")
    (first,) = found["gen_ai.client.operation.time_to_first_chunk"]
    assert first.sum == pytest.approx(facts[keys.TIME_TO_FIRST_CHUNK])
    tokens = {
        (point.attributes or {})[keys.TOKEN_TYPE]: point.sum
        for point in found["gen_ai.client.token.usage"]
    }
    assert tokens == {"input": 1456, "output": 30}
    (gap,) = found["gen_ai.client.operation.time_per_output_chunk"]
    decode_s = facts[keys.TIME_TO_LAST_CONTENT] - facts[keys.TIME_TO_FIRST_CONTENT]
    assert gap.sum == pytest.approx(decode_s / 9)


def test_a_failed_call_says_its_error_and_no_tokens(
    client: openai.OpenAI, spans: Spans, meters: Any
) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="bad-request", messages=MESSAGES)
    found = points(meters)
    (duration,) = found["gen_ai.client.operation.duration"]
    assert (duration.attributes or {})[keys.ERROR_TYPE] == "BadRequestError"
    assert "gen_ai.client.token.usage" not in found


def test_without_meters_nothing_is_recorded(client: openai.OpenAI, spans: Spans) -> None:
    client.chat.completions.create(model="plain", messages=MESSAGES)
    assert not metrics.are_wanted()
    assert len(spans) == 1
    assert longpole.stats().num_internal_errors == {}
