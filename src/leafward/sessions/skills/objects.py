"""The objects of one bucket, whose failures are told without a credential."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from leafward.core.errors import ConfigurationError, ContextError, StoreError
from leafward.sessions.skills.metadata import decode_description, encode_description
from leafward.stores.urls import without_secrets

if TYPE_CHECKING:
    from obstore import GetResult
    from obstore.store import S3Store

_CODE = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
# How the client speaks, not where and as whom: obstore takes these apart from the rest.
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_headers",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
# A model is waiting: the driver's own three minutes of retries are for batches.
_RETRIES = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's text and the description in its metadata."""

    text: str
    description: str | None


class Objects:
    """Lists, reads and writes the objects of a bucket.

    Raises:
        ConfigurationError: obstore is not installed, the URL names no bucket, or an option is unknown.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._store = _open(url, dict(options))
        self._name = url.partition("?")[0].rstrip("/")

    async def list(self, prefix: str) -> list[str]:
        """Return the paths of all objects in a folder, at any depth, without that folder's own."""
        import obstore

        found: list[str] = []
        with self._told(prefix):
            async for page in obstore.list(self._store, prefix=prefix or None):  # pyright: ignore[reportUnknownMemberType]
                found += [meta["path"] for meta in page]
        return [path for path in found if path.startswith(prefix)]

    async def description(self, path: str) -> tuple[bool, str | None]:
        """Return whether there is such an object, and the description in its metadata."""
        result = await self._get(path, head=True)
        return result is not None, None if result is None else _description(result)

    async def read(self, path: str, key: str, max_bytes: int) -> StoredObject | None:
        """Return an object, or None when there is none; `key` is how an error names it.

        Raises:
            ContextError: it is too large, or not UTF-8.
        """
        result = await self._get(path, head=False)
        if result is None:
            return None
        if result.meta["size"] > max_bytes:
            raise ContextError(f"{key} is larger than {max_bytes:,} bytes")
        with self._told(path):
            data = bytes(await result.bytes_async())
        try:
            return StoredObject(data.decode(), _description(result))
        except UnicodeDecodeError as error:
            raise ContextError(f"{key} is not UTF-8 text") from error

    async def write(self, path: str, data: bytes, description: str | None) -> None:
        """Write an object with a description in its metadata."""
        import obstore

        attributes = {"Content-Type": "text/plain; charset=utf-8"}
        if description is not None:
            attributes["description"] = encode_description(description)
        with self._told(path):
            await obstore.put_async(self._store, path, data, attributes=attributes)

    async def delete(self, path: str) -> None:
        """Remove an object."""
        import obstore

        with self._told(path):
            await obstore.delete_async(self._store, path)

    async def _get(self, path: str, *, head: bool) -> GetResult | None:
        import obstore

        with self._told(path):
            try:
                return await obstore.get_async(self._store, path, options={"head": head})
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    @contextmanager
    def _told(self, path: str) -> Generator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            # What the driver says can quote the request, and with it a token; so its words are not passed on.
            raise StoreError(f"{self._name}/{path} cannot be read or written: {_reason(error)}") from None


def _description(result: GetResult) -> str | None:
    value = result.attributes.get("description")
    return None if value is None else decode_description(value)


def _reason(error: Exception) -> str:
    text = str(error)
    if "169.254.169.254" in text:
        return "no credentials were given, and this machine offers none"
    if found := _CODE.search(text):
        return f"the server answered {found[1]}"
    if found := _STATUS.search(text):
        return f"the server answered with status {found[1]}"
    if "kind: Timeout" in text:
        return "the server did not answer in time"
    if "kind: Connect" in text:
        return "the server could not be reached"
    if "invalid path" in text:
        return "an object there has a name that no key can have, such as one with two slashes in a row"
    return f"the driver failed with {type(error).__name__}"


def _open(url: object, options: dict[str, Any]) -> S3Store:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError as error:
        raise ConfigurationError(
            "skills in a bucket need obstore: install it with `pip install 'leafward[s3]'`"
        ) from error
    if not isinstance(url, str) or not url.startswith(("s3://", "s3a://", "https://")):
        shown = without_secrets(url) if isinstance(url, str) else type(url).__name__
        raise ConfigurationError(f"{shown!r} is not the URL of a bucket, such as s3://bucket")
    if "@" in url:
        raise ConfigurationError("credentials do not belong in a URL: give access_key_id and secret_access_key")
    client = _client_options(options)
    options.setdefault("retry_config", _RETRIES)
    try:
        return S3Store.from_url(url, client_options=client, **options)
    except (BaseError, TypeError, ValueError) as error:
        # The driver may quote a value, and a value may be a secret, so only names are told.
        names = ", ".join(sorted(options.keys() | client.keys()))
        raise ConfigurationError(
            f"{url.partition('?')[0]!r} cannot be opened as a bucket ({type(error).__name__}); options given: {names}"
        ) from None


def _client_options(options: dict[str, Any]) -> Any:
    """Take what the client needs out of the options; an endpoint without TLS, given by name, is meant so."""
    client = dict(options.pop("client_options", None) or {})
    for name in list(options):
        bare = name.removeprefix("aws_")
        if bare in _CLIENT_OPTIONS:
            client[bare] = options.pop(name)
        elif bare in ("endpoint", "endpoint_url") and str(options[name]).startswith("http://"):
            client.setdefault("allow_http", True)
    return client
