"""The error of a model that did not answer."""

from __future__ import annotations

from leafward.core.errors import LeafwardError

_TOO_LONG = (
    "context_length_exceeded",
    "context length",
    "context window",
    "maximum context",
    "token limit",
    "too many tokens",
    "exceeds the model's maximum",
    "maximum number of tokens",
    "prompt is too long",
    "input is too long",
    "reduce the length",
)
"""What providers say of a conversation that is too long, in small letters."""


def says_too_long(reason: str, status: int | None) -> bool:
    """Tell whether an error says that a conversation does not fit into the model's window."""
    # A limit of tokens for each minute, which comes with 429, passes.
    said = reason.lower()
    return status != 429 and any(words in said for words in _TOO_LONG)


class ModelError(LeafwardError):
    """A model did not answer, or not to the end; the text says why.

    `temporary` says that the same request may succeed later: too many requests, a failing server, a stream that broke
    off. The engine asks again after a temporary error, and raises any other. `status` is the HTTP status, if there was
    one, and `retry_after` the seconds that the server asked to wait. `too_long` says that the conversation does not fit
    into the model's window, which the engine may compact; unless it is given, the text of the error tells.
    """

    def __init__(
        self,
        reason: str,
        *,
        temporary: bool = False,
        status: int | None = None,
        retry_after: float | None = None,
        too_long: bool | None = None,
    ) -> None:
        self.reason = reason
        self.temporary = temporary
        self.status = status
        self.retry_after = retry_after
        self.too_long = not temporary and says_too_long(reason, status) if too_long is None else too_long
        code = "" if status is None else f" with status {status}"
        super().__init__(f"the model failed{code}: {reason}")
