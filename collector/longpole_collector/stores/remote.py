"""A store in another process: read-only SQL over the collector's HTTP door."""

import json
from collections.abc import Mapping
from typing import Final

import httpx
import pyarrow as pa

from longpole.errors import BadInput, StoreBusy, Unreachable
from longpole_collector.stores.base import Params

ARROW: Final = "application/vnd.apache.arrow.stream"
QUERY_PATH: Final = "/api/v1/query"
_TIMEOUT_S: Final = 60.0


class RemoteReader:
    """Reads from a running collector."""

    def __init__(self, url: str) -> None:
        """``url`` is the collector's HTTP address, e.g. ``http://127.0.0.1:4318``."""
        self._url = url.rstrip("/")
        # proxies are for the outside; this is the same machine or the same network
        self._client = httpx.Client(timeout=_TIMEOUT_S, trust_env=False)

    def sql(self, query: str, params: Params = ()) -> pa.Table:
        """As :meth:`Reader.sql <longpole_collector.stores.base.Reader.sql>`."""
        given = dict(params) if isinstance(params, Mapping) else list(params)
        try:
            response = self._client.post(
                self._url + QUERY_PATH,
                json={"sql": query, "params": given},
                headers={"accept": ARROW},
            )
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:
            raise Unreachable(
                f"no collector answers at {self._url} ({error or type(error).__name__}): "
                "start `longpole collect`, or pass --url"
            ) from error
        if response.status_code == 200:
            with pa.ipc.open_stream(response.content) as stream:
                return stream.read_all()
        message = _message(response)
        if response.status_code in (429, 503):
            raise StoreBusy(message)
        if response.status_code in (400, 408, 413):
            raise BadInput(message)
        raise Unreachable(f"{self._url} answered {response.status_code}: {message}")

    def close(self) -> None:
        """Close the connection; later calls raise ``Unreachable``."""
        self._client.close()


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"])
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        return response.text[:200]
