import json
from dataclasses import replace

import httpx
import pytest

from longpole.errors import Unreachable, UsageError
from longpole.vocab import Span, keys
from longpole_collector.content import (
    KEY_FILE,
    MAX_VALUE_CHARS,
    Policy,
    Scrubber,
    load_key,
    policy_of,
)
from longpole_collector.content_keys import Action, action
from longpole_collector.decode.raw import RawEvent, RawLink
from longpole_collector.health import Health
from longpole_collector.settings import ProjectSettings, load_settings
from longpole_collector.stores import open_reader
from longpole_collector.stores.remote import RemoteReader

PROTOBUF = {"content-type": "application/x-protobuf"}
OPENAI_SCOPE = "opentelemetry.instrumentation.genai.openai"
KEY = bytes(range(32))
CONTENT = {
    "gen_ai.input.messages": "hush",
    "gen_ai.output.messages": "hush",
    "gen_ai.system_instructions": "hush",
    "gen_ai.prompt": "hush",
    "gen_ai.prompt.0.content": "hush",
    "gen_ai.completion.0.content": "hush",
    "gen_ai.tool.call.arguments": '{"city":"hush"}',
    "gen_ai.tool.call.result": "hush",
    "input.value": "hush",
    "output.value": "hush",
    "llm.input_messages.0.message.content": "hush",
    "llm.output_messages.0.message.content": "hush",
    "retrieval.documents.0.document.content": "hush",
    "traceloop.entity.input": "hush",
    "traceloop.entity.output": "hush",
    "langfuse.observation.input": "hush",
    "langfuse.trace.output": "hush",
    "ai.prompt.messages": "hush",
    "ai.response.text": "hush",
    "ai.toolCall.args": "hush",
    "mlflow.spanInputs": "hush",
    "mlflow.spanOutputs": "hush",
    "request_data": "hush",
    "pydantic_ai.all_messages": "hush",
}
PERSONS = (
    "user.id",
    "user.email",
    "enduser.id",
    "session.id",
    "gen_ai.conversation.id",
    "gen_ai.request.user",
    "langfuse.user.id",
    "langfuse.session.id",
    "traceloop.association.properties.user_id",
    "traceloop.association.properties.session_id",
    "ai.telemetry.metadata.userId",
    "ai.telemetry.metadata.sessionId",
    "mlflow.trace.user",
    "mlflow.trace.session",
    "langsmith.metadata.session_id",
    "langsmith.metadata.thread_id",
    "metadata.user_api_key_end_user_id",
    "metadata.user_api_key_user_email",
    "resource.user.id",
)


def span(attributes, **given):
    return Span(
        "0" * 32, "1" * 16, None, "work", "internal", 1, 2, 3, "app", None, None, "longpole",
        "unset", flags=[], attributes=dict(attributes), **given,
    )  # fmt: skip


def scrubber(content="drop", health=None, **given):
    return Scrubber(Policy(content, KEY, **given), health or Health())


# --- dropping ----------------------------------------------------------------------------------
@pytest.mark.parametrize("scope", ["somebody", keys.SCOPE_SDK, OPENAI_SCOPE, "vllm"])
def test_prompts_and_answers_are_dropped_at_the_door_whoever_sends_them(
    scope, otlp, client, names, collector
):
    event = ("gen_ai.choice", 1, {"message": "hush", "index": 0})
    body = otlp.body([otlp.span(attributes=CONTENT, events=[event])], scope=scope)
    assert client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 200
    names(1)
    reader = RemoteReader(collector.url)
    (row,) = reader.sql("SELECT * FROM spans").to_pylist()
    reader.close()
    assert "hush" not in repr(row)
    kept = {f"{key}.{what}" for key in CONTENT for what in ("length", "hash")}
    assert dict(row["attributes"]).keys() == kept
    assert collector.ingest.health.total("values_dropped", "content") == len(CONTENT) + 1


def test_a_dropped_value_leaves_its_length_and_a_keyed_hash():
    health = Health()
    cleaned = scrubber(health=health).clean(span({"input.value": "hush", "other": "x"}))
    digest = cleaned.attributes["input.value.hash"]
    left = {"input.value.length": "4", "input.value.hash": digest}
    assert cleaned.attributes == {"other": "x"} | left
    assert len(bytes.fromhex(digest)) == 8
    again = scrubber().clean(span({"output.value": "hush", "input.value": "other"})).attributes
    assert again["output.value.hash"] == digest != again["input.value.hash"]
    elsewhere = Scrubber(Policy(key=bytes(32)), Health()).clean(span({"input.value": "hush"}))
    assert elsewhere.attributes["input.value.hash"] != digest
    assert health.total("values_dropped", "content") == 1


def test_messages_in_events_and_links_are_dropped_too():
    event = RawEvent("gen_ai.choice", 1, {"message": {"content": "hush"}, "index": 0})
    other = RawEvent("progress", 2, {"message": "step 1", "input.value": "hush"})
    link = RawLink("0" * 32, "1" * 16, {"output.value": "hush"})
    cleaned = scrubber().clean(span({}), [event, other], [link])
    first, second = (event["attributes"] for event in json.loads(cleaned.events))
    assert first.pop("message.hash")
    assert first == {"index": 0, "message.length": 18}
    assert second.keys() == {"message", "input.value.length", "input.value.hash"}
    assert "hush" not in cleaned.events + cleaned.links
    assert json.loads(cleaned.links)[0]["trace_id"] == "0" * 32


def test_what_is_no_content_stays():
    kept = {
        "gen_ai.prompt.name": "n",
        "gen_ai.prompt.version": "v3",
        "input.value.length": "4",
        "input.value.hash": "00",
        "thread.id": "17",
        "http.route": "/user/{id}",
        "db.user": "app",
    }
    assert scrubber().clean(span(kept)).attributes == kept


@pytest.mark.parametrize("content", ["drop", "redact", "keep"])
def test_credentials_and_url_queries_are_dropped_always(content):
    attributes = {
        "http.request.header.authorization": "Bearer hush",
        "http.request.header.cookie": "hush",
        "http.response.header.set-cookie": "hush",
        "Authorization": "hush",
        "resource.api_key": "hush",
        "url.full": "https://x/y?token=hush",
        "url.query": "hush",
    }
    assert scrubber(content).clean(span(attributes)).attributes == {"url.full": "https://x/y"}


def test_long_values_and_long_lists_of_attributes_are_cut_and_flagged():
    long = scrubber().clean(span({"big": "x" * (MAX_VALUE_CHARS + 5)}))
    many = scrubber().clean(span({f"k{i}": "v" for i in range(400)}))
    assert len(long.attributes["big"]) == MAX_VALUE_CHARS
    assert len(many.attributes) == 256
    assert long.flags == many.flags == ["attributes_cut"]


# --- persons -----------------------------------------------------------------------------------
@pytest.mark.parametrize("key", PERSONS)
@pytest.mark.parametrize("content", ["drop", "keep"])
def test_ids_of_users_and_sessions_are_stored_as_pseudonyms_in_every_dialect(key, content):
    assert action(key) is Action.PERSON
    cleaner = scrubber(content)
    said = '"jo@example.org"' if key.startswith("mlflow") else "jo@example.org"
    cleaned = cleaner.clean(span({key: said}))
    assert cleaned.attributes == {key: cleaner.pseudonym("jo@example.org")}
    assert cleaned.attributes[key].startswith("h:")


def test_a_conversation_has_one_pseudonym_per_project_wherever_it_stands():
    mine, other = scrubber(), Scrubber(Policy(key=bytes(32)), Health())
    cleaned = mine.clean(span({"session.id": "conv-42"}, conversation_id="conv-42"))
    assert cleaned.conversation_id == cleaned.attributes["session.id"] != "conv-42"
    assert other.clean(span({}, conversation_id="conv-42")).conversation_id != (
        cleaned.conversation_id
    )
    again = other.clean(span({}, conversation_id=cleaned.conversation_id))
    assert again.conversation_id == cleaned.conversation_id, "an export is imported as it is"
    assert mine.clean(span({"user.id": ""}, conversation_id=None)).attributes == {"user.id": ""}


def test_the_key_is_made_once_and_for_its_owner_only(tmp_path):
    folder = tmp_path / "data"
    key = load_key(folder)
    assert len(key) == 32
    assert load_key(folder) == key
    assert (folder / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == [KEY_FILE]
    assert load_key(tmp_path / "other") != key
    (folder / KEY_FILE).write_bytes(b"short")
    with pytest.raises(Unreachable, match="has 5 bytes, not 32"):
        load_key(folder)
    assert "00010203" not in repr(Policy(key=KEY))


# --- keeping and redacting -----------------------------------------------------------------------
def test_content_stays_when_the_owner_keeps_it():
    assert scrubber("keep").clean(span(CONTENT)).attributes == CONTENT


def test_redacted_content_stays_without_what_names_somebody():
    health = Health()
    attributes = {
        "input.value": "I am jo@example.org, EMP-17",
        "output.value": "hello",
        "note": "jo@example.org",
    }
    event = RawEvent("gen_ai.choice", 1, {"message": {"content": "jo@example.org"}, "index": 0})
    cleaner = scrubber("redact", health, rules=(r"EMP-\d+",))
    cleaned = cleaner.clean(span(attributes), [event])
    assert cleaned.attributes == {
        "input.value": "I am [mail], [redacted]",
        "output.value": "hello",
        "note": "jo@example.org",
    }
    assert json.loads(cleaned.events)[0]["attributes"]["message"] == '{"content":"[mail]"}'
    assert health.total("values_dropped", "redacted") == 2
    assert health.total("values_dropped", "content") == 0


def test_a_long_value_is_redacted_up_to_where_it_is_cut():
    mail = "somebody@example.org "
    said = {"input.value": mail * 5_000, "output.value": "x " * (MAX_VALUE_CHARS // 2 - 4) + mail}
    health = Health()
    cleaned = scrubber("redact", health).clean(span(said))
    assert "some" not in "".join(cleaned.attributes.values())
    assert all(len(value) <= MAX_VALUE_CHARS for value in cleaned.attributes.values())
    assert cleaned.flags == ["attributes_cut"]
    assert health.total("values_dropped", "too_long") == 2


def test_a_projects_policy_is_read_from_the_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "longpole.toml"
    file.write_text('[collector.projects.web]\ncontent = "redact"\nredact = ["EMP-[0-9]+"]\n')
    assert load_settings().project("web") == ProjectSettings("redact", ("EMP-[0-9]+",))
    assert load_settings().project("default").content == "drop"
    assert policy_of(tmp_path / "db" / "projects" / "web").rules == ("EMP-[0-9]+",)
    assert policy_of(tmp_path / "db").content == "drop"
    for bad in ('content = "kep"', "contnt = 5", "keep_days = 0"):
        file.write_text(f"[collector.projects.web]\n{bad}\n")
        with pytest.raises(UsageError, match=r"projects\.web"):
            load_settings()
    file.write_text("[collector.projects.Web]\n")
    with pytest.raises(UsageError, match="project 'Web'"):
        load_settings()


# --- the data folder -----------------------------------------------------------------------------
SENT = (  # scope, attributes, events: how five libraries say it
    (OPENAI_SCOPE, {"gen_ai.operation.name": "chat", "gen_ai.input.messages": "hush-hush"}, ()),
    (
        "openinference.instrumentation.openai",
        {"openinference.span.kind": "LLM", "input.value": "hush-hush", "user.id": "jo-jo-17"},
        (),
    ),
    (
        "opentelemetry.instrumentation.openai.v1",
        {
            "traceloop.span.kind": "workflow",
            "gen_ai.prompt.0.content": "hush-hush",
            "traceloop.association.properties.session_id": "jo-jo-17",
        },
        [("gen_ai.content.completion.chunk", 5, {"gen_ai.completion": "hush-hush"})],
    ),
    (
        "langfuse-sdk",
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.output": "hush-hush",
            "langfuse.user.id": "jo-jo-17",
        },
        (),
    ),
    (
        "mlflow.tracing.provider",
        {"mlflow.spanType": '"LLM"', "mlflow.spanInputs": '{"q":"hush-hush"}',
         "mlflow.trace.session": '"jo-jo-17"'},
        (),
    ),
)  # fmt: skip


def in_folder(folder, *needles):
    """The files under a folder that hold one of these texts."""
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and any(needle.encode() in path.read_bytes() for needle in needles)
    ]


def in_store(folder, *needles):
    """The rows that hold one of these texts: in the files text may lie compressed."""
    reader = open_reader(db=folder)
    rows = [str(row) for row in reader.sql("SELECT * FROM spans").to_pylist()]
    reader.close()
    assert len(rows) == len(SENT)
    return [row for row in rows if any(needle in row for needle in needles)]


def send_all(otlp, url):
    with httpx.Client(base_url=url, trust_env=False) as client:
        for scope, attributes, events in SENT:
            body = otlp.body([otlp.span(attributes=attributes, events=events)], scope=scope)
            assert client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 200


def test_content_of_five_dialects_and_who_said_it_are_nowhere_in_the_folder(
    otlp, settings, collecting
):
    with collecting(settings) as collector:
        send_all(otlp, collector.url)
    assert not list((settings.db / "wal").iterdir()), "all of the log is stored"
    assert in_folder(settings.db, "hush-hush", "jo-jo-17") == []
    assert in_store(settings.db, "hush-hush", "jo-jo-17") == []


def test_kept_content_is_in_the_folder_and_who_said_it_is_not(otlp, settings, collecting, caplog):
    with collecting(replace(settings, projects={"default": ProjectSettings("keep")})) as collector:
        send_all(otlp, collector.url)
    assert in_store(settings.db, "hush-hush") != []
    assert in_store(settings.db, "jo-jo-17") == []
    assert "project 'default' stores prompts and answers (keep for 7 days)" in caplog.messages
