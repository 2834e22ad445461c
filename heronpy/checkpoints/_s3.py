"""Checkpoints in S3, or in what speaks its protocol and honours `If-None-Match: *`."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from heronpy.checkpoints._names import MANIFESTS, OBJECTS
from heronpy.checkpoints._storage import CheckpointStorage, Listed, check_storage_name
from heronpy.errors import ConfigError, NotFoundError, ReadFailedError, StateError, UnavailableError

_log = logging.getLogger(__name__)
PART_BYTES = 8 * 1024 * 1024
"""An object is uploaded in parts of so many bytes (S3 asks for 5 MiB or more); a smaller one at once."""
_CONNECT_S = 5.0
_ANSWER_S = 30.0
_ATTEMPTS = 3
_COPIED_AT_ONCE_BYTES = 1024 * 1024 * 1024
"""A larger object is copied in parts: S3 copies at most 5 GiB at once, and an answer must come in time."""
_COPIED_PART_BYTES = 512 * 1024 * 1024
_DELETED_AT_ONCE = 1000
_TORN_S = 24 * 3600.0
"""An upload in parts takes minutes; whose is older has died."""
_ABSENT = frozenset(("NoSuchKey", "404", "NotFound"))
_UNNAMED = frozenset(("400", "403", "404"))
"""The answer to HEAD has no body, so no code: it is 404 where there is no object, and where there is no bucket."""
_TAKEN = frozenset(("PreconditionFailed", "412"))
_CONFLICT = frozenset(("ConditionalRequestConflict", "409"))
"""Something else happened to the name meanwhile: whose it is is not known yet."""
_REFUSED = frozenset(("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoSuchBucket"))


_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
_REMEDIES = {
    "NoCredentialsError": f"; {_CREDENTIALS}",
    "InvalidAccessKeyId": f"; {_CREDENTIALS}",
    "SignatureDoesNotMatch": f"; {_CREDENTIALS}",
    "ExpiredToken": "; renew the credentials",
    "RequestTimeTooSkewed": "; set the clock of this machine",
    "NoSuchBucket": "; create it, or name another",
    "AccessDenied": "; these credentials need the right to list, read, write and delete there",
}
"""What to do, by S3's code of an error, or by its class in botocore."""


class S3Storage(CheckpointStorage):
    """Objects of a bucket below a prefix. Credentials are found as boto3 does (environment, profile, role).

    Uploads of which a process died are aborted by `remove_torn`, or by the bucket's rule for incomplete ones.
    """

    def __init__(
        self, bucket: str, prefix: str = "", *, endpoint: str | None = None, region: str | None = None
    ) -> None:
        """Connect with the first request.

        Raises:
            ConfigError: boto3 is not installed, or there are no such endpoint and region.
        """
        try:
            boto3: Any = importlib.import_module("boto3")
        except ImportError as e:
            raise ConfigError("a storage of s3:// needs boto3: pip install 'heron-engine[s3]'") from e
        from botocore import exceptions, parsers
        from botocore.config import Config

        self._client_error: Any = exceptions.ClientError
        self._any_error: Any = (exceptions.BotoCoreError, parsers.ResponseParserError)  # the latter: not S3 answers
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        own_server: dict[str, Any] = {"s3": {"addressing_style": "path"}} if endpoint else {}
        try:
            # A session of its own: boto3's default one is not safe to make in several threads.
            self._client: Any = boto3.session.Session().client(
                "s3",
                endpoint_url=endpoint,
                region_name=region,
                config=Config(
                    connect_timeout=_CONNECT_S,
                    read_timeout=_ANSWER_S,
                    retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                    **own_server,
                ),
            )
        except (exceptions.BotoCoreError, ValueError) as e:
            raise ConfigError(f"the storage {self}: {e}") from e

    @classmethod
    def open(cls, url: str) -> Self:
        """Of `s3://bucket/prefix?endpoint=…&region=…`.

        Raises:
            ConfigError: as the constructor, or there is no bucket, or another option.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        unknown = options.keys() - {"endpoint", "region"}
        if not parts.netloc or "@" in parts.netloc or unknown:
            raise ConfigError(
                "the URL of a storage in S3 is s3://bucket/prefix?endpoint=…&region=…; credentials are not in it"
            )
        return cls(parts.netloc, parts.path, endpoint=options.get("endpoint"), region=options.get("region"))

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        parts = _parts(chunks)
        first = next(parts, b"")
        with self._errors(name):
            second = next(parts, None)
            if second is None:
                self._client.put_object(**self._of(name), Body=first)
            else:
                self._put_parts(name, chain((first, second), parts))

    def _put_parts(self, name: str, parts: Iterable[bytes]) -> None:
        with self._upload_of(name) as (upload, tags):
            for number, part in enumerate(parts, 1):
                tags.append(self._client.upload_part(**upload, PartNumber=number, Body=part)["ETag"])

    @contextlib.contextmanager
    def _upload_of(self, name: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
        """An upload in parts, whose tags the block notes down. All of them are the object at its end, or nothing is."""
        upload = {**self._of(name), "UploadId": self._client.create_multipart_upload(**self._of(name))["UploadId"]}
        tags: list[str] = []
        try:
            yield upload, tags
            parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
            self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        except BaseException:
            with contextlib.suppress(self._client_error, *self._any_error):
                self._client.abort_multipart_upload(**upload)
            raise

    def create(self, name: str, data: bytes) -> bool:
        with self._errors(name):
            for attempts_left in reversed(range(_ATTEMPTS)):
                try:
                    self._client.put_object(**self._of(name), Body=data, IfNoneMatch="*")
                    return True
                except self._client_error as e:
                    if _code(e) in _TAKEN:
                        break
                    if _code(e) not in _CONFLICT or not attempts_left:
                        raise
            # Taken, perhaps by this call: an answer that was lost is asked for again.
            try:
                return bool(self._client.get_object(**self._of(name))["Body"].read() == data)
            except self._client_error as e:
                if _code(e) in _ABSENT:
                    return False  # deleted meanwhile
                raise

    def size(self, name: str) -> int:
        return self.stat(check_storage_name(name)).size

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self.read_of(Listed(check_storage_name(name), 0, ""), offset, length)

    def stat(self, name: str) -> Listed:
        with self._errors(name):
            answer = self._head(name)
            return _listed(name, int(answer["ContentLength"]), answer)

    def _head(self, name: str) -> Any:
        """What is known of an object. Why it cannot be asked for is said only where a body may be: see `_UNNAMED`."""
        where = {"Bucket": self._bucket, "Key": self._prefix + name}
        try:
            return self._client.head_object(**where)
        except self._client_error as e:
            if _code(e) not in _UNNAMED:
                raise
            self._client.get_object(**where)["Body"].close()
            raise  # it is there meanwhile

    def read_of(self, found: Listed, offset: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            return b""
        with self._errors(found.name):
            answer = self._range_of(found.name, offset, length)
            if answer is None:
                return b""
            with contextlib.closing(answer["Body"]) as body:  # of another object nothing is read
                if found.stamp not in ("", answer["ETag"]):
                    raise ReadFailedError(f"{self}: {found.name} was replaced while it was read")
                return bytes(body.read())

    def read_found(self, name: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Listed]:
        with self._errors(name):
            answer = self._range_of(name, offset, length) if length != 0 else None
            if answer is None:
                return super().read_found(name, offset, 0)
            with contextlib.closing(answer["Body"]) as body:
                size = int(answer["ContentRange"].rpartition("/")[2])
                return bytes(body.read()), _listed(name, size, answer)

    def _range_of(self, name: str, offset: int, length: int | None) -> Any:
        """The answer with a part of an object, or None if it ends before."""
        end = "" if length is None else str(offset + length - 1)
        try:
            return self._client.get_object(Bucket=self._bucket, Key=self._prefix + name, Range=f"bytes={offset}-{end}")
        except self._client_error as e:
            if _code(e) == "InvalidRange":
                return None
            raise

    def names(self, prefix: str = "") -> list[str]:
        return [one.name for one in self.listed(prefix)]

    def listed(self, prefix: str = "") -> list[Listed]:
        found = []
        with self._errors(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            for page in pages:
                for one in page.get("Contents", ()):
                    name, modified_s = one["Key"][len(self._prefix) :], one["LastModified"].timestamp()
                    found.append(Listed(name, one["Size"], one["ETag"], modified_s))
        return sorted(found, key=lambda one: one.name)

    def copy(self, name: str, to: str) -> None:
        found = self.stat(check_storage_name(name))
        with self._errors(name):  # by the server
            if found.size <= _COPIED_AT_ONCE_BYTES:
                self._client.copy_object(CopySource=self._of(name), **self._of(to))
            else:
                self._copy_parts(found, to)

    def _copy_parts(self, found: Listed, to: str) -> None:
        source = {"CopySource": self._of(found.name), "CopySourceIfMatch": found.stamp}
        try:
            with self._upload_of(to) as (upload, tags):
                for number, at in enumerate(range(0, found.size, _COPIED_PART_BYTES), 1):
                    part = f"bytes={at}-{min(at + _COPIED_PART_BYTES, found.size) - 1}"
                    answer = self._client.upload_part_copy(**upload, **source, PartNumber=number, CopySourceRange=part)
                    tags.append(answer["CopyPartResult"]["ETag"])
        except self._client_error as e:
            if _code(e) in _TAKEN:
                raise ReadFailedError(f"{self}: {found.name} was replaced while it was copied") from e
            raise

    def delete(self, names: Iterable[str]) -> None:
        keys = [{"Key": self._of(name)["Key"]} for name in names]
        for start in range(0, len(keys), _DELETED_AT_ONCE):
            some = keys[start : start + _DELETED_AT_ONCE]
            with self._errors(some[0]["Key"]):
                answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": some, "Quiet": True})
            if failed := answer.get("Errors"):
                raise StateError(f"{self}: {failed[0].get('Key')} cannot be deleted: {failed[0].get('Message')}")

    def remove_torn(self, names: Iterable[str] = (MANIFESTS, OBJECTS), *, lately: bool = False) -> None:
        """Abort uploads in parts that began so long ago that their writer is dead."""
        before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=_TORN_S)
        uploads = self._client.get_paginator("list_multipart_uploads")
        try:
            for name in names:
                pages = uploads.paginate(Bucket=self._bucket, Prefix=self._prefix + name)
                found = [one for page in pages for one in page.get("Uploads", ())]
                for one in [one for one in found if lately or one["Initiated"] < before]:
                    self._client.abort_multipart_upload(Bucket=self._bucket, Key=one["Key"], UploadId=one["UploadId"])
        except (self._client_error, *self._any_error) as e:  # they do no harm, and not every user may list them
            _log.info("%r: uploads that were begun long ago cannot be removed: %s", self, e)

    def close(self) -> None:
        self._client.close()

    def _of(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_storage_name(name)}

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except self._client_error as e:
            code = _code(e)
            if code in _ABSENT:
                raise NotFoundError(f"there is no {name} in {self}") from e
            kind = StateError if code in _REFUSED else UnavailableError
            raise kind(f"{self}, {name}: {e}{_REMEDIES.get(code, '')}") from e
        except self._any_error as e:
            raise UnavailableError(f"{self}, {name}: {e}{_REMEDIES.get(type(e).__name__, '')}") from e

    def __str__(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def __repr__(self) -> str:
        return f"S3Storage({self._bucket!r}, {self._prefix!r})"


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of the size of a part; the last may be smaller."""
    some: list[bytes] = []
    size = 0
    for chunk in chunks:
        some.append(chunk)
        size += len(chunk)
        if size >= PART_BYTES:
            yield b"".join(some)
            some, size = [], 0
    if some:
        yield b"".join(some)


def _listed(name: str, size: int, answer: Any) -> Listed:
    return Listed(name, size, answer["ETag"], answer["LastModified"].timestamp())


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
