from typing import Any

import longpole
from longpole.testing import Spans
from longpole.vocab import Stage, keys


def facts(span: Any) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_hit_says_what_is_known_of_it(spans: Spans) -> None:
    with longpole.cache_lookup("answers", kind="semantic") as lookup:
        lookup.hit(0.93, is_stale=True, saved_s=2.5, source_version="docs-41")
    with longpole.cache_lookup("answers", "exact") as lookup:
        lookup.hit()
    found, plain = (facts(span) for span in spans)
    assert found[keys.STAGE] == Stage.OTHER
    assert found[keys.APP_CACHE_KIND] == "semantic"
    assert found[keys.APP_CACHE_HIT] is True
    assert found[keys.APP_CACHE_SIMILARITY] == 0.93
    assert found[keys.APP_CACHE_STALE] is True
    assert found[keys.APP_CACHE_SAVED] == 2.5
    assert found[keys.APP_CACHE_SOURCE_VERSION] == "docs-41"
    assert plain[keys.APP_CACHE_KIND] == "exact"
    assert plain[keys.APP_CACHE_HIT] is True
    assert keys.APP_CACHE_STALE not in plain
    assert keys.CACHE_STATE not in plain  # that is the provider's prompt cache


def test_a_miss_and_a_lookup_that_says_nothing(spans: Spans) -> None:
    with longpole.cache_lookup("answers") as lookup:
        lookup.miss()
    with longpole.cache_lookup("answers"):
        pass
    assert facts(spans[0])[keys.APP_CACHE_HIT] is False
    assert keys.APP_CACHE_HIT not in facts(spans[1])
    assert keys.APP_CACHE_KIND not in facts(spans[1])
