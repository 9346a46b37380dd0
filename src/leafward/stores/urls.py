"""What may be said of a store's URL."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from leafward.core.errors import ConfigurationError

_VALUES = re.compile(r"([?&][^=&#]*=)[^&#]*")


def without_secrets(url: str) -> str:
    """Return a URL, or what was meant as one, without what stands before an `@` and without parameters' values."""
    before, at, after = url.rpartition("@")
    if "?" in before and at:
        # The @ may be a part of a password, given as a parameter.
        return f"{url.partition(':')[0]}:…"
    return _VALUES.sub(r"\1…", f"{before.partition(':')[0]}:…@{after}" if at else url)


def need_driver(module: str, extra: str, url: str) -> Any:
    """Return a driver, or say what to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        scheme = url.partition("://")[0]
        raise ConfigurationError(
            f"{scheme}:// needs {module}, which is not installed: pip install 'leafward[{extra}]'"
        ) from error
