"""Random requests, made from the API's own description, and random bytes at the OTLP doors.

Nothing may answer with a server error, hang, or say what its description does not.
"""

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error

from longpole_collector.app import background
from longpole_collector.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore")  # the fuzzer's own
FUZZ = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TYPES = ("application/x-protobuf", "application/json", "application/json; charset=utf-8")
ENCODINGS = ("identity", "gzip", "deflate")
PATHS = ("/v1/traces", "/v1/logs", "/v1/metrics")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    places = Settings(db=tmp_path_factory.mktemp("fuzz"), http="127.0.0.1:0", grpc="127.0.0.1:0")
    with background(places) as collector:
        yield collector.url


@pytest.fixture(scope="module")
def api(url):
    document = httpx.get(f"{url}/openapi.json", trust_env=False).json()
    document["paths"].pop("/api/v1/backup")  # each one copies the store
    return schemathesis.openapi.from_dict(document)


def test_whatever_the_api_is_asked_it_answers_as_it_says(url, api):
    for found in api.get_all_operations():
        operation = found.ok()

        @FUZZ
        @given(case=operation.as_strategy())
        def ask(case):
            answer = case.call(base_url=url, timeout=30)
            case.validate_response(answer, checks=[not_a_server_error])

        ask()


@FUZZ
@given(
    path=st.sampled_from(PATHS),
    body=st.binary(max_size=4096),
    content_type=st.sampled_from(TYPES),
    encoding=st.sampled_from(ENCODINGS),
)
def test_random_bytes_at_a_door_are_refused_or_taken_and_break_nothing(
    url, path, body, content_type, encoding
):
    headers = {"content-type": content_type, "content-encoding": encoding}
    answer = httpx.post(url + path, content=body, headers=headers, trust_env=False, timeout=30)
    assert answer.status_code in (200, 400, 413)
    assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
