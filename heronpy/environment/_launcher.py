"""Runs on a host that has a Python, and nothing else: makes the environment that was shipped, and becomes its Python.

    python3 -c "<this file>" PATH|s3://BUCKET/NAME?OPTIONS SHA256 BYTES TAG ARGUMENTS...

Standard library only, and no other file. The environment is made once per user, host and content, in HERON_PYTHON_CACHE
or ~/.cache/heron/python; it appears there by a rename, so that of several containers that start at once one wins and
no reader sees a half. S3 is asked with the credentials of the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
maybe AWS_SESSION_TOKEN. Exit code 75 says that the same command may succeed later.

What runs in an environment holds a lock of it, also after `exec`. One without a lock that was not used for a month is
removed when another is made.
"""

import contextlib
import fcntl
import hashlib
import hmac
import http.client
import os
import pwd
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from typing import IO, NoReturn
from urllib.parse import parse_qsl, quote, urlsplit

KEPT_S = 30 * 86_400.0
ANSWER_S = 30.0
AGAIN = "kill the topology and submit it again"


def _end(why: str, code: int = 1) -> NoReturn:
    sys.stderr.write(f"heron: {why}\n")
    sys.exit(code)


def _cache() -> str:
    places = [os.environ.get("HERON_PYTHON_CACHE") or os.path.expanduser("~/.cache/heron/python")]
    if "HERON_PYTHON_CACHE" not in os.environ:  # HOME may be a directory of others: YARN sets it to /home
        with contextlib.suppress(KeyError):
            places.append(os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".cache/heron/python"))
        places.append(os.path.join(tempfile.gettempdir(), f"heron-python-{os.getuid()}"))
    for place in places:
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            found = os.lstat(place)
        except OSError as e:
            why = f"{place} cannot be made: {e.strerror}; set HERON_PYTHON_CACHE to another directory"
            continue
        if found.st_uid == os.getuid() and not found.st_mode & 0o022:
            return place
        _end(f"{place} belongs to another user, or others can write to it: set HERON_PYTHON_CACHE to one of your own")
    _end(why)


def _lock(place: str, how: int) -> int:
    """A descriptor of the environment's lock, or -1: it is not there, or others hold it."""
    try:
        fd = os.open(os.path.join(place, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as e:
        if how == fcntl.LOCK_SH and not isinstance(e, BlockingIOError):
            return fd  # a file system without locks: nothing is ever removed there
        os.close(fd)
        return -1
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(fd), os.stat(os.path.join(place, "lock"))):
            return fd
    os.close(fd)  # it was removed meanwhile
    return -1


def _remove_unused(cache: str) -> None:
    for name in os.listdir(cache):
        place = os.path.join(cache, name)
        with contextlib.suppress(OSError):
            if os.stat(place).st_mtime < time.time() - KEPT_S and (fd := _lock(place, fcntl.LOCK_EX)) >= 0:
                if name[0] != ".":  # else it was never whole, or its removal was interrupted
                    place = os.path.join(cache, f".old-{name}")
                    os.rename(os.path.join(cache, name), place)
                shutil.rmtree(place, ignore_errors=True)
                os.close(fd)


def _signed(url: str) -> urllib.request.Request:
    """A request for an object of S3, path-style, with AWS Signature Version 4."""
    env, parts = os.environ, urlsplit(url)
    options = dict(parse_qsl(parts.query))
    name, key = env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY")
    if not name or not key:
        _end("S3 is asked with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which this container's environment lacks")
    region = options.get("region") or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = urlsplit(options.get("endpoint") or f"https://s3.{region}.amazonaws.com")
    path = quote(f"{endpoint.path.rstrip('/')}/{parts.netloc}{parts.path}", safe="/-_.~")
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    body = hashlib.sha256(b"").hexdigest()
    headers = {"host": endpoint.netloc, "x-amz-content-sha256": body, "x-amz-date": moment}
    if token := env.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = token
    names = ";".join(headers)
    lines = ["GET", path, "", *(f"{header}:{value}" for header, value in headers.items()), "", names, body]
    signed = ["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256("\n".join(lines).encode()).hexdigest()]
    secret = f"AWS4{key}".encode()
    for word in (*scope.split("/"), "\n".join(signed)):
        secret = hmac.digest(secret, word.encode(), "sha256")
    said = f"AWS4-HMAC-SHA256 Credential={name}/{scope},SignedHeaders={names},Signature={secret.hex()}"
    return urllib.request.Request(
        f"{endpoint.scheme}://{endpoint.netloc}{path}", headers={**headers, "authorization": said}
    )


def _open(path: str) -> IO[bytes]:
    if not path.startswith("s3://"):
        return open(path, "rb")
    trust = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE"))
    try:
        found: IO[bytes] = urllib.request.urlopen(_signed(path), timeout=ANSWER_S, context=trust)
    except urllib.error.HTTPError as e:
        code = re.search(rb"<Code>(\w+)</Code>", e.read(10_000))
        why = code[1].decode() if code else f"{e.code} {e.reason}"
        if why == "NoSuchKey":
            _end(f"the shipped environment {path} is not there: {AGAIN}")
        _end(f"the shipped environment {path} cannot be read: S3 answers {why}", 75 if e.code >= 500 else 1)
    return found


def _fetch(path: str, sha256: str, size: int, into: str) -> None:
    digest, copied = hashlib.sha256(), 0
    try:
        with _open(path) as source, open(into, "xb") as target:
            while piece := source.read(1 << 20):
                copied += len(piece)
                if copied > size:
                    break
                digest.update(piece)
                target.write(piece)
    except FileNotFoundError:
        _end(f"the shipped environment {path} is not there: {AGAIN}")
    except PermissionError:
        _end(f"the shipped environment {path} cannot be read by uid {os.getuid()}: submit as that user")
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as e:
        _end(f"the shipped environment {path} cannot be fetched: {getattr(e, 'reason', e)}", 75)
    if path.startswith("s3://") and copied < size:
        _end(f"the shipped environment {path} cannot be fetched: it ends after {copied} of {size} bytes", 75)
    if copied != size or digest.hexdigest() != sha256:
        _end(f"the shipped environment {path} is damaged: kill the topology, delete that file and submit again")


def _unpack(archive: str, into: str) -> None:
    # It has been verified, so the topology's submitter has made it.
    with tarfile.open(archive, "r|gz") as members:
        for member in members:
            if not (member.isreg() or member.isdir()) or member.name.startswith("/") or ".." in member.name.split("/"):
                _end(f"the shipped environment has {member.name} in it: refused")
            members.extract(member, into)


def _make(path: str, sha256: str, size: int, place: str) -> None:
    scratch = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(place))
    try:
        made = os.path.join(scratch, "venv")
        # Without pip, which Debian's Python does not bring.
        command = [sys.executable, "-m", "venv", "--without-pip", made]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            _end(f"{sys.executable} can make no virtual environment: {' '.join(done.stderr.split())[-200:]}")
        archive = os.path.join(scratch, "archive")
        _fetch(path, sha256, size, archive)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        _unpack(archive, os.path.join(made, "lib", version, "site-packages"))
        try:
            os.rename(made, place)
        except OSError:
            if not os.path.isdir(place):  # else another container was faster
                raise
    except OSError as e:
        _end(f"the shipped environment cannot be made in {place}: {e.strerror or e}", 75)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _main() -> None:
    path, sha256, size, tag = sys.argv[1:5]
    own = f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"
    if own != tag:
        _end(f"this host's Python is {own}, and the shipped environment is for {tag}: submit with such a Python")
    cache = _cache()
    place = os.path.join(cache, sha256)
    if (fd := _lock(place, fcntl.LOCK_SH)) < 0:
        _remove_unused(cache)
        if not os.path.isdir(place):
            _make(path, sha256, int(size), place)
        fd = _lock(place, fcntl.LOCK_SH)
    if fd < 0:
        _end(f"{place} is just being removed", 75)
    os.set_inheritable(fd, True)
    os.utime(place)
    python = os.path.join(place, "bin", "python")
    os.execv(python, [python, *sys.argv[5:]])


_main()
