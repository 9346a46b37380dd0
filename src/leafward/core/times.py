"""Times as we keep them: microseconds since 1970 inside, aware UTC datetimes outside, ISO text with Z on the wire."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Return microseconds since 1970.

    Raises:
        ValueError: the datetime has no time zone.
    """
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"a time is a datetime, not {moment!r}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(f"{moment!r} has no time zone: give an aware datetime, e.g. datetime.now(timezone.utc)")
    try:
        # In UTC it must still be a year from 1 to 9999, or it could not be given back.
        return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND
    except OverflowError:
        raise ValueError(f"{moment!r} lies outside the years 1 to 9999 in UTC") from None


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def now_micros() -> int:
    return time.time_ns() // 1000


def to_wire(micros: int) -> str:
    """Return ISO text with microseconds and Z."""
    return from_micros(micros).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_micros(value: datetime | str) -> int:
    """Read a datetime, or ISO text with a time zone, as microseconds since 1970."""
    return to_micros(datetime.fromisoformat(value) if isinstance(value, str) else value)


def local_zone() -> object:
    """Return an object for the zone of local times: after `time.tzset()` it is another one."""
    # Two zones may have the same names and differ in their past; but each call makes this tuple again.
    return time.tzname


def to_local(micros: int) -> str:
    """Return local time without its zone, as AgentScope writes it: `2026-08-22 23:15:56.123`."""
    try:
        local = from_micros(micros).astimezone()
    except OverflowError:
        # The first and the last hours of the calendar are not in it everywhere.
        local = from_micros(micros)
    return local.replace(tzinfo=None).isoformat(" ", "milliseconds")


def parse_local(text: str) -> int:
    """Read zoneless text as local time, as AgentScope writes it."""
    return to_micros(datetime.fromisoformat(text).astimezone())
