"""A store in another process: read-only SQL over the collector's HTTP door."""

import json
from collections.abc import Mapping
from typing import Any, Final

import httpx
import pyarrow as pa

from longpole.config import settings
from longpole.errors import BadInput, StoreBusy, Unreachable, UsageError
from longpole_collector.settings import DEFAULTS
from longpole_collector.stores.base import Params

ARROW: Final = "application/vnd.apache.arrow.stream"
QUERY_PATH: Final = "/api/v1/query"
_TIMEOUT_S: Final = 60.0
_END_OF_STREAM: Final = bytes.fromhex("ffffffff00000000")
_BROKEN_OFF: Final = (
    "{} broke its answer off: a limit was met or it stopped; see its log, or ask for less"
)


class RemoteReader:
    """Reads from a running collector."""

    def __init__(self, url: str, key: str | None = None, timeout_s: float | None = None) -> None:
        """Connect at the first question.

        Args:
            url: the collector's HTTP address, e.g. ``http://127.0.0.1:4318``.
            key: the key to show; default is ``api_key`` of the settings, if there is one.
            timeout_s: how long one query may take; ``None`` leaves it to the collector.
        """
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        # proxies are for the outside; this is the same machine or the same network
        self._client = httpx.Client(timeout=_TIMEOUT_S, trust_env=False, headers=auth_headers(key))

    def sql(self, query: str, params: Params = ()) -> pa.Table:
        """As :meth:`Reader.sql <longpole_collector.stores.base.Reader.sql>`."""
        body: dict[str, Any] = {"sql": query}
        body["params"] = dict(params) if isinstance(params, Mapping) else list(params)
        if self._timeout_s is not None:
            body["timeout_s"] = self._timeout_s
        try:
            response = self._client.post(
                self._url + QUERY_PATH,
                json=body,
                headers={"accept": ARROW},
                timeout=self._timeout_s or _TIMEOUT_S,
            )
        except httpx.ReadTimeout as error:
            limit_s = self._timeout_s or _TIMEOUT_S
            raise BadInput(f"the query took longer than {limit_s:g} s") from error
        except httpx.RemoteProtocolError as error:
            raise Unreachable(_BROKEN_OFF.format(self._url)) from error
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:
            raise Unreachable(
                f"no collector answers at {self._url} ({error or type(error).__name__}): "
                "start `longpole collect`, or pass --url"
            ) from error
        if response.status_code == 200:
            if not response.content.endswith(_END_OF_STREAM):
                raise Unreachable(_BROKEN_OFF.format(self._url))
            with pa.ipc.open_stream(response.content) as stream:
                return stream.read_all()
        message = _message(response)
        if response.status_code == 401:
            raise UsageError(
                f"{self._url} wants a key, or another one: set LONGPOLE_COLLECTOR_API_KEY"
            )
        if response.status_code in (429, 503):
            raise StoreBusy(message)
        if response.status_code in (400, 408, 413):
            raise BadInput(message)
        raise Unreachable(f"{self._url} answered {response.status_code}: {message}")

    def get(self, path: str) -> httpx.Response:
        """What another path of the collector answers, whatever its status.

        Raises:
            Unreachable: no collector answers.
        """
        try:
            return self._client.get(self._url + path)
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:
            raise Unreachable(
                f"no collector answers at {self._url} ({error or type(error).__name__})"
            ) from error

    def close(self) -> None:
        """Close the connection; later calls raise ``Unreachable``."""
        self._client.close()


def auth_headers(key: str | None = None) -> dict[str, str]:
    """The header that shows a key to a collector; empty without a key.

    Args:
        key: the key; default is ``api_key`` of the settings, if there is one.
    """
    shown = key or settings("collector", DEFAULTS)["api_key"].value
    return {"authorization": f"Bearer {shown}"} if shown else {}


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"])
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        return response.text[:200]
