"""The few pages in front of the dashboard: plain HTML, no script, nothing from elsewhere."""

import html
from typing import Final

from starlette.responses import HTMLResponse

from longpole_dashboard.login.store import MIN_CHARACTERS

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>longpole</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ display: grid; place-items: center; min-height: 90vh; margin: 0; }}
main {{ width: min(22rem, 90vw); }}
h1 {{ font-size: 1.4rem; margin: 0 0 1rem; }}
label {{ display: block; margin: 0 0 0.8rem; }}
input {{ display: block; box-sizing: border-box; width: 100%; font: inherit; padding: 0.4rem; }}
button {{ font: inherit; padding: 0.4rem 1.2rem; }}
[role=alert] {{ border-left: 4px solid #e15759; padding-left: 0.6rem; }}
</style></head><body><main><h1>{title}</h1>{body}</main></body></html>
"""
_ALERT: Final = '<p role="alert">{}</p>'
_LOGIN: Final = """{alert}<form method="post" action="/login">
<input type="hidden" name="next" value="{onward}">
<label>Name<input name="name" value="{name}" autocomplete="username" required autofocus></label>
<label>Password<input name="password" type="password" autocomplete="current-password" required>
</label><button>Log in</button></form>"""
_SET: Final = """{alert}<p>Set the password of <b>{name}</b>, once.</p>
<form method="post" action="/login/set"><input type="hidden" name="token" value="{token}">
<input type="hidden" name="name" value="{name}" autocomplete="username">
<label>Password, {least} characters or more<input name="password" type="password"
 minlength="{least}" autocomplete="new-password" required autofocus></label>
<label>Once more<input name="again" type="password" autocomplete="new-password" required></label>
<button>Set it and log in</button></form>"""
_LEAVE: Final = """<p>You are logged in as <b>{name}</b>.</p>
<form method="post" action="/logout"><button>Log out</button></form>
<p><a href="/">Back to the dashboard</a></p>"""
_SAID: Final = """{alert}<p><a href="/login">Log in</a></p>"""


def login(onward: str, name: str = "", wrong: str = "", status: int = 200) -> HTMLResponse:
    """The form for name and password; ``onward`` is where it leads, ``wrong`` why it is back."""
    return _page("Log in to longpole", _LOGIN, status, wrong, onward=onward, name=name)


def set_password(name: str, token: str, wrong: str = "", status: int = 200) -> HTMLResponse:
    """The form that sets a password by a link's token."""
    least = str(MIN_CHARACTERS)
    return _page("Set a password", _SET, status, wrong, name=name, token=token, least=least)


def leave(name: str) -> HTMLResponse:
    """The form that logs out."""
    return _page("Log out of longpole", _LEAVE, 200, name=name)


def said(sentence: str, status: int) -> HTMLResponse:
    """One sentence, and the way to the form."""
    return _page("longpole", _SAID, status, sentence)


def _page(title: str, form: str, status: int, wrong: str = "", **values: str) -> HTMLResponse:
    escaped = {name: html.escape(value) for name, value in values.items()}
    alert = _ALERT.format(html.escape(wrong)) if wrong else ""
    page = _PAGE.format(title=title, body=form.format(alert=alert, **escaped))
    return HTMLResponse(page, status, headers={"cache-control": "no-store"})
