"""One page as Streamlit runs it, without a browser and without the frame around it."""

from streamlit.testing.v1 import AppTest

from longpole_dashboard.model.selection import EVERYTHING, Selection


def _script(name, selected):  # type: ignore[no-untyped-def]  # its source is run by itself
    from importlib import import_module

    from longpole_dashboard import data
    from longpole_dashboard.pages.base import Page

    page = import_module(f"longpole_dashboard.pages.{name}").PAGE
    assert isinstance(page, Page)
    page.draw(selected, data.bounds())


def run(name: str, selected: Selection | None = None, **params: str) -> AppTest:
    """The page of that name over everything, opened at an address with these parameters."""
    app = AppTest.from_function(
        _script,
        default_timeout=60,
        kwargs={"name": name, "selected": selected or Selection(EVERYTHING)},
    )
    for key, value in params.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception, app.exception
    return app


def texts(app: AppTest) -> str:
    """What stands on the page besides tables."""
    kinds = ("html", "markdown", "subheader", "title", "code")
    return " ".join(str(part.value) for part in app.main if part.type in kinds)
