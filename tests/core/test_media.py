"""Files are read from every dialect into one value."""

from __future__ import annotations

import pytest

from leafward.core.media import read_media


@pytest.mark.parametrize(
    ("written", "plain"),
    [("image/jpg", "image/jpeg"), ("IMAGE/PNG", "image/png"), ("text/plain; charset=utf-8", "text/plain")],
)
def test_a_media_type_is_read_in_small_letters_and_without_parameters(written: str, plain: str) -> None:
    given = read_media({"type": "file", "mediaType": written, "url": "https://x.test/a"})
    in_address = read_media({"type": "file", "url": f"data:{written};base64,aGk="})
    in_source = read_media({"type": "data", "source": {"type": "base64", "media_type": written, "data": "aGk="}})

    assert [media and media.media_type for media in (given, in_address, in_source)] == [plain] * 3
