import sys
from dataclasses import replace
from typing import Any

import openai
import pytest

import longpole
from longpole import providers, transport
from longpole.errors import UsageError
from longpole.providers.base import Provider
from longpole.testing import Spans
from longpole.wrap import _instrument, _load

MESSAGES: Any = [{"role": "user", "content": "x"}]


@pytest.fixture
def bare(server: Any) -> Any:
    with openai.OpenAI(api_key="k", base_url=server.base_url) as client:
        yield client


def call(client: openai.OpenAI) -> None:
    client.chat.completions.create(model="plain", messages=MESSAGES)


def test_wrap_returns_the_same_object_and_twice_is_a_no_op(
    bare: openai.OpenAI, spans: Spans
) -> None:
    assert longpole.wrap(bare) is bare
    method = bare.chat.completions._post
    assert longpole.wrap(bare) is bare
    assert bare.chat.completions._post is method
    call(bare)
    assert len(spans) == 1


def test_unwrap_leaves_no_trace(bare: openai.OpenAI, server: Any, spans: Spans) -> None:
    before = dict(vars(bare.chat.completions))
    assert longpole.unwrap(longpole.wrap(bare)) is bare
    assert dict(vars(bare.chat.completions)) == before
    assert not {"copy", "with_options", "_longpole_undo"} & set(vars(bare))
    assert bare._client.event_hooks == {"request": [], "response": []}
    call(bare)
    bare.chat.completions.with_raw_response.create(model="plain", messages=MESSAGES)
    assert len(spans) == 0
    assert "traceparent" not in server.requests[0].headers
    assert longpole.unwrap(bare) is bare


def test_a_wrapped_method_looks_like_the_one_it_wraps(bare: openai.OpenAI) -> None:
    import inspect

    before = inspect.signature(bare.chat.completions.create)
    longpole.wrap(bare)
    assert inspect.signature(bare.chat.completions.create) == before


def test_copies_of_a_wrapped_client_are_wrapped_and_share_one_pair_of_hooks(
    bare: openai.OpenAI, spans: Spans
) -> None:
    longpole.wrap(bare)
    copy = bare.with_options(timeout=5)
    call(copy.copy())
    assert len(spans) == 1
    assert len(bare._client.event_hooks["request"]) == 1
    longpole.unwrap(bare)
    call(copy)
    assert len(spans) == 2
    assert [dict(s.attributes or {})["http.request.resend_count"] for s in spans] == [0, 0]


def test_an_unknown_client_is_left_alone_with_one_warning(caplog: Any) -> None:
    class Unknown:
        pass

    client = Unknown()
    assert longpole.wrap(client) is client
    assert longpole.wrap(Unknown()) is not client
    assert not vars(client)
    assert len(caplog.records) == 1


def test_an_unknown_version_is_left_alone_with_one_warning(
    bare: openai.OpenAI, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(openai, "__version__", "99.1.0")
    longpole.wrap(bare)
    longpole.wrap(bare)
    assert "create" not in vars(bare.chat.completions)
    assert len(caplog.records) == 1
    assert "99.1.0" in caplog.text


def test_a_client_that_cannot_be_patched_is_left_as_it_was(
    bare: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(transport, "hook", broken)
    post = bare.chat.completions._post
    assert longpole.wrap(bare) is bare
    assert bare.chat.completions._post == post
    assert "create" not in vars(bare.chat.completions)
    assert "copy" not in vars(bare)


def test_instrument_wraps_clients_from_now_on(server: Any, spans: Spans) -> None:
    init = openai.OpenAI.__init__
    longpole.instrument()
    longpole.instrument("openai")
    try:
        with openai.OpenAI(api_key="k", base_url=server.base_url) as client:
            call(client)
        with openai.AzureOpenAI(
            api_key="k", azure_endpoint=server.base_url, api_version="2026-01-01"
        ) as azure:
            call(azure)
    finally:
        longpole.uninstrument()
    assert openai.OpenAI.__init__ is init
    with openai.OpenAI(api_key="k", base_url=server.base_url) as client:
        call(client)
    assert len(spans) == 2


def test_a_class_that_a_version_lacks_is_skipped() -> None:
    init = openai.OpenAI.__init__
    provider = _load("openai")
    _instrument(
        replace(
            provider,
            classes=("Lacking", "OpenAI", "lib.lacking.Client"),
            factories=("lib.no.make",),
        ),
        "openai",
    )
    assert openai.OpenAI.__init__ is not init
    longpole.uninstrument()
    assert openai.OpenAI.__init__ is init
    assert not longpole.stats().num_internal_errors


def test_instrument_leaves_an_unknown_version_alone_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    init = openai.OpenAI.__init__
    monkeypatch.setattr(openai, "__version__", "99.1.0")
    longpole.instrument("openai")
    longpole.instrument()
    assert openai.OpenAI.__init__ is init
    longpole.uninstrument()
    assert len([record for record in caplog.records if "openai" in record.message]) == 1
    assert "99.1.0" in caplog.text


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["longpole.wrap"], "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"'openai'.*not installed"):
        longpole.instrument("openai")
    longpole.instrument()


def test_instrument_names_what_it_knows() -> None:
    with pytest.raises(UsageError, match=r"known: .*openai"):
        longpole.instrument("opanai")


def test_every_provider_file_defines_a_provider() -> None:
    from pkgutil import iter_modules

    files = [info.name for info in iter_modules(providers.__path__)]
    names = [name for name in files if name != "base" and not name.startswith("_")]
    assert names
    for name in names:
        provider = _load(name)
        assert isinstance(provider, Provider)
        assert provider.methods
        assert provider.majors


def test_a_wrapped_client_is_collected(server: Any) -> None:
    import gc
    import weakref

    client = longpole.wrap(openai.OpenAI(api_key="k", base_url=server.base_url))
    call(client)
    dead = weakref.ref(client)
    http = weakref.ref(client._client)
    client.close()
    del client
    gc.collect()
    assert dead() is None
    assert http() is None
    assert not [key for key in transport._hooked if key.is_closed]
