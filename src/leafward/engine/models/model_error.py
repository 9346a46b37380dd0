"""The error of a model that did not answer."""

from __future__ import annotations

from leafward.core.errors import LeafwardError


class ModelError(LeafwardError):
    """A model did not answer, or not to the end; the text says why.

    `temporary` says that the same request may succeed later: too many requests, a failing server, a stream that broke
    off. The engine asks again after a temporary error, and raises any other. `status` is the HTTP status, if there was
    one, and `retry_after` the seconds that the server asked to wait.
    """

    def __init__(
        self, reason: str, *, temporary: bool = False, status: int | None = None, retry_after: float | None = None
    ) -> None:
        self.reason = reason
        self.temporary = temporary
        self.status = status
        self.retry_after = retry_after
        code = "" if status is None else f" with status {status}"
        super().__init__(f"the model failed{code}: {reason}")
