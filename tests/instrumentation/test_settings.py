from pathlib import Path

import pytest

from longpole import settings
from longpole.errors import UsageError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_precedence_is_argument_ours_opentelemetrys_file_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.load().endpoint == "http://127.0.0.1:4318"
    (tmp_path / "longpole.toml").write_text('[sdk]\nendpoint = "http://file:1"\n')
    assert settings.load().endpoint == "http://file:1"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:1")
    assert settings.load().endpoint == "http://otel:1"
    monkeypatch.setenv("LONGPOLE_SDK_ENDPOINT", "http://ours:1")
    assert settings.load().endpoint == "http://ours:1"
    assert settings.load(endpoint="http://argument:1").endpoint == "http://argument:1"


def test_an_endpoint_is_stated_only_by_who_means_longpole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not settings.load().is_endpoint_stated
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:1")
    assert not settings.load().is_endpoint_stated
    assert settings.load(endpoint="http://a").is_endpoint_stated
    monkeypatch.setenv("LONGPOLE_SDK_ENDPOINT", "http://ours:1")
    assert settings.load().is_endpoint_stated


def test_opentelemetrys_numbers_come_in_our_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "250")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "nonsense")
    found = settings.load()
    assert (found.export_delay_s, found.queue_size, found.timeout_s) == (0.25, 9, 10.0)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://a:1", "http://a:1/v1/traces"),
        ("http://a:1/", "http://a:1/v1/traces"),
        ("http://a:1/x/v1/traces", "http://a:1/x/v1/traces"),
    ],
)
def test_the_traces_door(base: str, url: str) -> None:
    assert settings.load(endpoint=base).traces_url == url


def test_opentelemetrys_traces_door_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://a:1/mine")
    assert settings.load().traces_url == "http://a:1/mine"


def test_wrong_settings_are_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'endpoint'"):
        settings.load(endpiont="x")
    with pytest.raises(UsageError, match="none of private"):
        settings.load(propagate="sometimes")
    with pytest.raises(UsageError, match="not above 0"):
        settings.load(queue_size=0)
    with pytest.raises(UsageError, match="is not a bool"):
        settings.load(ask_usage="yes")


def test_a_broken_file_gives_the_defaults_and_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "longpole.toml").write_text("[sdk]\nendpiont = 1\n")
    settings.put(None)
    assert settings.current() == settings.defaults()
    assert settings.current() == settings.defaults()
    assert len(caplog.records) == 1
    with pytest.raises(UsageError, match="did you mean 'endpoint'"):
        settings.load()


@pytest.mark.parametrize(
    ("word", "is_captured"),
    [
        ("true", True),
        ("SPAN_ONLY", True),
        ("span_and_event", True),
        ("event_only", False),
        ("NO_CONTENT", False),
        ("false", False),
    ],
)
def test_opentelemetrys_word_about_content_is_honoured(
    word: str, is_captured: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert settings.load().capture_content is False
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", word)
    assert settings.load().capture_content is is_captured
    monkeypatch.setenv("LONGPOLE_SDK_CAPTURE_CONTENT", "true")
    assert settings.load().capture_content is True
    assert settings.load(capture_content=False).capture_content is False
    assert caplog.records == []


def test_an_unknown_word_about_content_captures_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "sometimes")
    assert settings.load().capture_content is False
    assert len(caplog.records) == 1


def test_the_key_of_hashes_has_a_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.load().hash_key is None
    monkeypatch.setenv("LONGPOLE_PREFIX_KEY", "short")
    assert settings.load().hash_key == "short"
    monkeypatch.setenv("LONGPOLE_SDK_HASH_KEY", "long")
    assert settings.load().hash_key == "long"


def test_an_expression_that_cannot_be_used_is_named() -> None:
    with pytest.raises(UsageError, match=r"redact_pattern: '\(' is|redact_pattern: '\(': "):
        settings.load(redact_pattern="(")
    with pytest.raises(UsageError, match="matches the empty text"):
        settings.load(redact_pattern="x*")
