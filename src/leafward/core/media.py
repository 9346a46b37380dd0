"""Images, recordings and files, read from every dialect into one value."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from string import ascii_letters, digits
from typing import Any, cast

from leafward.core.parts import Part
from leafward.core.provider_extras import raw_of

_AUDIO_TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_DIGITS = (ascii_letters + digits + "+/").encode()
AUDIO_FORMATS = {
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
}
DETAILS = ("auto", "low", "high")
"""How closely OpenAI's models look at an image."""


@dataclass(frozen=True, slots=True)
class Media:
    """One file of a message: where it is (`url`, `file_id`) or what is in it (`data` in base64, or `text`)."""

    kind: str
    """`image`, `audio`, `video` or `file`."""
    media_type: str | None = None
    url: str | None = None
    data: str | None = None
    file_id: str | None = None
    text: str | None = None
    name: str | None = None
    keeper: str | None = None
    """Whose `file_id` it is: `openai` or `anthropic`; nobody else can read it."""

    @property
    def any_url(self) -> str | None:
        """Its address, or a data URL of its bytes."""
        if self.data is not None:
            usual = "image/png" if self.kind == "image" else "application/octet-stream"
            return f"data:{self.media_type or usual};base64,{self.data}"
        return self.url

    @property
    def model_url(self) -> str | None:
        """What a provider can fetch or decode: a web address, or a data URL of bytes that are base64.

        `None` for anything else, such as a path on some machine.
        """
        if self.data is not None:
            return self.any_url if _is_base64(self.data) else None
        return self.url if self.url is not None and self.url.startswith(("https://", "http://")) else None

    @property
    def is_usual_image(self) -> bool:
        """Whether it is an image of a type that every provider takes."""
        return self.kind == "image" and (self.media_type is None or self.media_type in _IMAGE_TYPES)

    @property
    def is_pdf(self) -> bool:
        """Whether it is a PDF; a file of no type is taken for one."""
        return self.kind == "file" and self.media_type in (None, "application/pdf")

    @property
    def text_data(self) -> str | None:
        """The bytes of a text file in base64, `None` for any other file."""
        return self.data if self.media_type == "text/plain" else None

    @property
    def plain_text(self) -> str | None:
        """What is in the bytes of a text file, `None` for any other file."""
        if self.text_data is None or not _is_base64(self.text_data):
            return None
        try:
            return b64decode(self.text_data).decode()
        except ValueError:
            return None

    @property
    def file_name(self) -> str:
        """Its name, or one that a provider takes in its place."""
        return self.name or ("file.pdf" if self.is_pdf else "file")


def read_media(part: Part) -> Media | None:
    """Return the file a part or block carries; `None` when it carries none, or in a way nobody documents."""
    media = None if raw_of(part) is not None else _read(part)
    # What stands for any type, as `image/*` does, is a type to no provider.
    return replace(media, media_type=None) if media is not None and _is_any(media.media_type) else media


def _read(part: Part) -> Media | None:
    kind: object = part.get("type")
    if kind in ("image", "audio", "video", "document", "data") and isinstance(part.get("source"), dict):
        return _from_source(part, cast(dict[str, Any], part["source"]))
    if kind in ("image", "audio") and isinstance(part.get("data"), str):
        return Media(cast(str, kind), _type(part, "mimeType", "mediaType"), data=_without_breaks(part["data"]))
    if kind in ("image_url", "input_image"):
        return _from_image_url(part)
    if kind == "input_audio":
        return _from_input_audio(part)
    if kind == "file" and isinstance(part.get("file"), dict):
        return _from_file(cast(dict[str, Any], part["file"]))
    if kind == "input_file":
        return _from_file(part)
    if kind == "file" and isinstance(part.get("url"), str):
        media_type = _type(part, "mediaType", "mimeType")
        return _from_url(part["url"], media_type, _text(part, "filename"), None)
    return None


def kind_of(media_type: str | None) -> str:
    """Return `image`, `audio`, `video` or `file` for a media type."""
    family = (media_type or "").partition("/")[0]
    return family if family in ("image", "audio", "video") else "file"


def _from_source(part: Part, source: dict[str, Any]) -> Media | None:
    media_type = _type(source, "media_type", "mime_type")
    kind = kind_of(media_type) if part["type"] in ("document", "data") else cast(str, part["type"])
    name = _text(part, "name", "title")
    if isinstance(source.get("file_id"), str):
        return Media(kind, media_type, file_id=source["file_id"], name=name, keeper="anthropic")
    if isinstance(source.get("url"), str):
        return _from_url(source["url"], media_type, name, kind)
    if not isinstance(source.get("data"), str):
        return None
    if source.get("type") == "text":
        return Media("file", media_type or "text/plain", text=source["data"], name=name)
    return Media(kind, media_type, data=_without_breaks(source["data"]), name=name)


def _from_image_url(part: Part) -> Media | None:
    found: object = part.get("image_url")
    url = cast(dict[str, object], found).get("url") if isinstance(found, dict) else found
    if isinstance(url, str):
        return _from_url(url, None, None, "image")
    file_id = _text(part, "file_id")
    return None if file_id is None else Media("image", file_id=file_id, keeper="openai")


def _from_input_audio(part: Part) -> Media | None:
    found: object = part.get("input_audio")
    audio = cast(dict[str, Any], found) if isinstance(found, dict) else {}
    form = _text(audio, "format")
    if not isinstance(audio.get("data"), str):
        return None
    return Media("audio", _AUDIO_TYPES.get(form or "", f"audio/{form}"), data=_without_breaks(audio["data"]))


def _from_file(file: Mapping[str, Any]) -> Media | None:
    name = _text(file, "filename")
    url = _text(file, "file_data", "file_url")
    if url is not None and not url.startswith("data:") and "file_data" in file:
        return Media("file", None, data=_without_breaks(url), name=name)
    if url is not None:
        return _from_url(url, None, name, None)
    file_id = _text(file, "file_id")
    return None if file_id is None else Media("file", file_id=file_id, name=name, keeper="openai")


def _from_url(url: str, media_type: str | None, name: str | None, kind: str | None) -> Media:
    head, comma, data = url.partition(",")
    if url.startswith("data:") and comma and head.endswith(";base64"):
        written = _plain_type(head[len("data:") :])
        media_type = written or media_type if _is_any(media_type) else media_type
        return Media(kind or kind_of(media_type), media_type, data=_without_breaks(data), name=name)
    return Media(kind or kind_of(media_type), media_type, url=url, name=name)


def _type(holder: Mapping[str, Any], *keys: str) -> str | None:
    return _plain_type(_text(holder, *keys) or "")


def _plain_type(media_type: str) -> str | None:
    """Return a media type as providers compare it: in small letters, without parameters, by its usual name."""
    plain = media_type.partition(";")[0].strip().lower()
    return "image/jpeg" if plain == "image/jpg" else plain or None


def _is_any(media_type: str | None) -> bool:
    return media_type is None or media_type.endswith("/*")


def _is_base64(data: str) -> bool:
    content = data.rstrip("=")
    if not content or not content.isascii() or len(data) % 4 or len(data) - len(content) > 2:
        return False
    return not content.encode().translate(None, _DIGITS)


def _without_breaks(data: str) -> str:
    """Return base64 in one line: mail and some libraries break it into many."""
    return "".join(data.split()) if "\n" in data or " " in data else data


def _text(holder: Mapping[str, Any], *keys: str) -> str | None:
    for key in keys:
        if isinstance(holder.get(key), str) and holder[key]:
            return cast(str, holder[key])
    return None
