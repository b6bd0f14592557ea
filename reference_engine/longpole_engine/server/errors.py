"""Refusals in OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}``."""

from typing import Any


class ApiError(Exception):
    """A request that gets an error answer.

    Args:
        status: HTTP status.
        message: one sentence for the caller.
        param: the request's field that is wrong.
        code: a word for programs.
        retry_after_s: when the same request may succeed.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    @property
    def type(self) -> str:
        """OpenAI's class of error."""
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    def body(self) -> dict[str, Any]:
        """The document to send."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }

    def headers(self) -> dict[str, str]:
        """Headers that go with it."""
        return {} if self.retry_after_s is None else {"retry-after": str(self.retry_after_s)}
