"""Which values the options of an agent may have."""

from __future__ import annotations

from leafward.core.errors import ConfigurationError
from leafward.stores.leases.table_leases import LONGEST_TTL


def check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not one of some words.

    Raises:
        ConfigurationError: it is not.
    """
    if value not in choices:
        raise ConfigurationError(f"{option} is one of {', '.join(map(repr, choices))}, not {value!r}")


def check_count(option: str, value: object, what: str, *, least: int) -> None:
    """Refuse a value that does not count something.

    Raises:
        ConfigurationError: it is not a whole number, or too small.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{option} is a number of {what}, {least} or more, not {value!r}")


def check_model(value: object) -> None:
    """Refuse what is not a model.

    Raises:
        ConfigurationError: it has no method `stream`, or is a class.
    """
    if isinstance(value, type) or not callable(getattr(value, "stream", None)):
        raise ConfigurationError(
            f"model is an object with a method `stream`, such as OpenAIChatModel(…), not {value!r}"
        )


def check_prompt(value: object) -> None:
    """Refuse a prompt that is not a text.

    Raises:
        ConfigurationError: it is not.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"system_prompt is a text, empty for none, not {value!r}")


def check_ttl(value: object) -> None:
    """Refuse what a lease cannot last.

    Raises:
        ConfigurationError: it is not a length of time.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= LONGEST_TTL:
        raise ConfigurationError(f"lease_ttl is a number of seconds, above 0 and up to a year, not {value!r}")


def checked_timeout(option: str, value: object) -> float | None:
    """Return a length of time, or `None` for no limit.

    Raises:
        ConfigurationError: it is something else.
    """
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= LONGEST_TTL:
        raise ConfigurationError(
            f"{option} is a number of seconds above 0 and up to a year, or None for no limit, not {value!r}"
        )
    return float(value)
