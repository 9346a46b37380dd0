"""A real S3 server on a free port, and a bucket of one's own in it."""

from __future__ import annotations

import logging
from collections.abc import Generator
from itertools import count
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from leafward.sessions.skills import BucketSkillProvider

_numbers = count()


class Bucket:
    """A bucket, seen by others than the provider."""

    def __init__(self, endpoint: str, name: str) -> None:
        self.name = name
        self.options: dict[str, Any] = {
            "endpoint": endpoint,
            "access_key_id": "an-id",
            "secret_access_key": "a-secret",
            "region": "us-east-1",
        }
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id="an-id",
            aws_secret_access_key="a-secret",
            region_name="us-east-1",
        )
        self._client.create_bucket(Bucket=name)

    def put(self, key: str, text: str | bytes, **metadata: str) -> None:
        body = text.encode() if isinstance(text, str) else text
        self._client.put_object(Bucket=self.name, Key=key, Body=body, Metadata=metadata)

    def metadata(self, key: str) -> dict[str, str]:
        return self._client.head_object(Bucket=self.name, Key=key)["Metadata"]

    def keys(self) -> list[str]:
        return [item["Key"] for item in self._client.list_objects_v2(Bucket=self.name).get("Contents", [])]

    def close(self) -> None:
        self._client.close()

    def provider(self, prefix: str = "", **options: Any) -> BucketSkillProvider:
        return BucketSkillProvider(f"s3://{self.name}", prefix, **{**self.options, **options})


@pytest.fixture(scope="session")
def s3_endpoint() -> Generator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_endpoint: str) -> Generator[Bucket]:
    bucket = Bucket(s3_endpoint, f"skills-{next(_numbers)}")
    yield bucket
    bucket.close()
