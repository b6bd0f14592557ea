"""The way from the Overview to a trace of what was planted."""

from __future__ import annotations

from benchmarks.bars import Bar
from benchmarks.dashboard import spans
from benchmarks.dashboard.bench import Bench
from benchmarks.dashboard.chromium import EXPLORE, OVERVIEW, TRACE, load, wait_ready, window

from longpole_dashboard.theme import look


def clicks(bench: Bench) -> list[Bar]:
    """Clicks until a trace of the planted slice is open.

    Raises:
        AssertionError: stage or slice was not named before the first click, or the trace is of
            another slice.
    """
    with bench.small() as served, window(bench.browser) as page:
        load(page, f"{served.url}/?route={spans.ROUTE}", OVERVIEW)
        said = page.locator(".lp-note.worse").first.inner_text()
        for named in (look(spans.STAGE).label, f"prompt_version={spans.PLANTED}"):
            assert named in said, f"'{named}' is not in: {said}"
        page.get_by_role("button", name="Explore the slow ones").first.click()
        wait_ready(page, EXPLORE)
        page.locator(EXPLORE[-1]).first.locator("td").nth(2).click()
        wait_ready(page, TRACE)
        trace_id = page.url.partition("trace=")[2][:32]
        asked = f"SELECT prompt_version FROM traces WHERE trace_id = '{trace_id}'"  # noqa: S608
        found = served.collector.query(asked)[0][0]
        assert found == spans.PLANTED, f"trace {trace_id} is of prompt version {found}"
    return [Bar("clicks", 2, "", "<=", 3, {"said": said.splitlines()[0]})]
