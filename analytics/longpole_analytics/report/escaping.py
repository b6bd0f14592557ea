"""Names from anywhere made inert: in HTML and SVG, and in Markdown."""

import html
import re

from longpole_analytics.wording import printable


def escaped(text: str) -> str:
    """Text for HTML and SVG, in content and in quoted attributes, without control characters."""
    return html.escape(printable(text), quote=True)


def marked(text: str) -> str:
    """Text in which Markdown sees no mark, no HTML, no link and no cell's end."""
    plain = html.escape(printable(text), quote=False)
    plain = re.sub(r"([\\`*_{}\[\]#|~!])", r"\\\1", plain)
    plain = re.sub(r"^(\s*)([-+>]|\d+[.)])(?=\s|$)", r"\1\\\2", plain)
    # a bare address becomes a link: not out of somebody's route name
    return re.sub(r"(?i)\b(https?|ftp|www|mailto)([:.])", r"\1&#8203;\2", plain).replace(
        "@", "&#64;"
    )
