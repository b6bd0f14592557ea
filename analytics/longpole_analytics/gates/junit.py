"""Findings as JUnit XML, which every CI shows: a check a test case."""

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from longpole_analytics.gates.base import Check, Finding
from longpole_analytics.wording import printable

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml(found: Sequence[tuple[Check, Finding]], seconds: Sequence[float]) -> str:
    """One suite; what fails is a failure, what cannot be decided an error: neither is a pass.

    Args:
        found: checks and what they found.
        seconds: how long each took.
    """
    failed = sum(finding.status == "fail" for _, finding in found)
    undecided = sum(finding.status == "undecided" for _, finding in found)
    facts = {
        "name": "longpole gate",
        "tests": str(len(found)),
        "failures": str(failed),
        "errors": str(undecided),
        "skipped": "0",
        "time": f"{sum(seconds):.3f}",
    }
    root = Element("testsuites", facts)
    suite = SubElement(root, "testsuite", facts)
    for (check, finding), took in zip(found, seconds, strict=True):
        case = SubElement(
            suite,
            "testcase",
            {"classname": f"longpole.{check.kind}", "name": check.name, "time": f"{took:.3f}"},
        )
        said = _NOT_XML.sub("", printable(finding.text))
        if finding.status == "fail":
            SubElement(case, "failure", {"message": said, "type": check.kind}).text = said
        elif finding.status == "undecided":
            kind = "not enough evidence"
            SubElement(case, "error", {"message": said, "type": kind}).text = said
        else:
            SubElement(case, "system-out").text = said
    body: str = tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'
