"""What may be said of a store's URL."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from leafward.core.errors import ConfigurationError


def without_secrets(url: str) -> str:
    """Return a URL, or what was meant as one, without what stands before an `@`."""
    before, at, after = url.rpartition("@")
    return f"{before.partition(':')[0]}:…@{after}" if at else url


def need_driver(module: str, extra: str, url: str) -> Any:
    """Return a driver, or say what to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        scheme = url.partition("://")[0]
        raise ConfigurationError(
            f"{scheme}:// needs {module}, which is not installed: pip install 'leafward[{extra}]'"
        ) from error
