"""The errors of a provider's SDK as a model's errors: which of them may pass, and how long to wait."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from json import JSONDecodeError
from typing import Any, cast

from leafward.engine.models.model_error import ModelError, says_too_long

LONGEST_WAIT_S = 60.0
"""A server that asks to wait longer has an error that does not pass within a turn."""

_PASSING = frozenset({408, 409, 429})
_LONGEST_REASON = 1_000
_LASTING = frozenset({"insufficient_quota", "billing_hard_limit_reached", "context_length_exceeded"})
"""Codes of errors that come with any status, and do not pass."""
_TOO_LONG = frozenset({"context_length_exceeded", "request_too_large"})
"""Codes and types of errors that say that the conversation is too long."""
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""What the type of an error within a stream would be as a status."""


def model_error(error: Exception, sdk: Any) -> ModelError | None:
    """Return the error of an SDK, or of the HTTP library below it, as a model's; `None` for any other.

    `sdk` is the module `openai` or `anthropic`: both have errors of the same names.
    """
    if isinstance(error, sdk.APIConnectionError):
        cause = error.__cause__
        return ModelError(_reason(f"{error}: {cause!r}" if cause is not None else f"{error}"), temporary=True)
    if isinstance(error, sdk.APIError):
        return _from_api(error)
    if isinstance(error, (JSONDecodeError, UnicodeDecodeError)):
        return ModelError(f"its stream cannot be read: {error}", temporary=True)
    if _is_of_http(error):
        return ModelError(_reason(f"its stream broke off: {error!r}"), temporary=True)
    return None


def _from_api(error: Any) -> ModelError:
    """Read what a server answered, or what it sent within a stream, whose status is that of its beginning."""
    said: object = error.body
    if isinstance(said, dict) and isinstance(cast(dict[str, object], said).get("error"), dict):
        said = cast(dict[str, object], said)["error"]
    fields = cast(dict[str, object], said) if isinstance(said, dict) else {}
    response: Any = getattr(error, "response", None)
    status: int | None = getattr(error, "status_code", None)
    if status is None or status < 400:
        status = _status_within(fields)
    headers = cast(Mapping[str, str], {} if response is None else response.headers)
    wait = _wait(headers)
    # A server that failed within a stream, and did not say how, had taken the request.
    passes = status is None or status in _PASSING or status >= 500
    asked = headers.get("x-should-retry")
    if asked in ("true", "false"):
        passes = asked == "true"
    codes = (fields.get("code"), fields.get("type"))
    if not _LASTING.isdisjoint(codes) or (wait or 0) > LONGEST_WAIT_S:
        passes = False
    text = fields.get("message")
    reason = _reason(text if isinstance(text, str) and text else str(error))
    too_long = not _TOO_LONG.isdisjoint(codes) or says_too_long(reason, status)
    passes = passes and not too_long
    return ModelError(reason, temporary=passes, status=status, retry_after=wait, too_long=too_long)


def _status_within(fields: Mapping[str, object]) -> int | None:
    """Return the status that an error within a stream stands for, as far as it says."""
    code = fields.get("code")
    if isinstance(code, int) and 400 <= code <= 599:
        return code
    return _STATUSES.get(str(fields.get("type")))


def _wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait: a number, or a date."""
    for name, unit in (("retry-after-ms", 1_000), ("retry-after", 1)):
        try:
            found = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return found if math.isfinite(found) and found >= 0 else None
    try:
        date = parsedate_tz(headers.get("retry-after", ""))
        return None if date is None else max(0.0, mktime_tz(date) - time.time())
    except (ValueError, OverflowError):
        return None


def _is_of_http(error: Exception) -> bool:
    """Tell an error of a connection: SDKs stand on `httpx` or on `httpx2`, and not all of them translate it."""
    return any(
        base.__name__ == "RequestError" and base.__module__.partition(".")[0] in ("httpx", "httpx2")
        for base in type(error).__mro__
    )


def _reason(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
