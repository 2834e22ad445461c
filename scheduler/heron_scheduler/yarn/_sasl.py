"""SASL by DIGEST-MD5 (RFC 2831, quality of protection `auth`), as Hadoop's servers ask it of holders of a token."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets

from heronpy.errors import ConfigError, UnavailableError

_PAIR = re.compile(rb'\s*([a-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^,"\s]*))\s*(?:,|$)')


def parse_challenge(challenge: bytes) -> dict[str, str]:
    """The directives of a challenge.

    Raises:
        UnavailableError: it is none.
    """
    found, at = {}, 0
    while at < len(challenge):
        pair = _PAIR.match(challenge, at)
        if pair is None:
            raise UnavailableError("a server of Hadoop has sent a challenge that is not one of DIGEST-MD5")
        name, quoted, plain = pair.groups()
        value = re.sub(rb"\\(.)", rb"\1", quoted) if quoted is not None else plain
        try:
            found[name.decode()] = value.decode()
        except UnicodeDecodeError:
            raise UnavailableError("a server of Hadoop has sent a challenge that is not UTF-8") from None
        at = pair.end()
    return found


class DigestClient:
    """One login with a token. The password never leaves it."""

    def __init__(self, identifier: bytes, password: bytes, digest_uri: str, *, cnonce: str | None = None) -> None:
        self._user = base64.b64encode(identifier).decode()
        self._password = base64.b64encode(password).decode()
        self._uri = digest_uri
        self._cnonce = cnonce or secrets.token_urlsafe(24)
        self.proof = b""
        """What a server says last that knows the password, too."""

    def respond(self, challenge: bytes) -> bytes:
        """The answer to a server's challenge.

        Raises:
            ConfigError: the cluster wants integrity or privacy of SASL, which is not supported.
            UnavailableError: it is no challenge of DIGEST-MD5.
        """
        asked = parse_challenge(challenge)
        if "auth" not in [one.strip() for one in asked.get("qop", "auth").split(",")]:
            raise ConfigError(
                f"the cluster has hadoop.rpc.protection with {asked['qop']} alone: the YARN scheduler needs "
                "`authentication` among its values"
            )
        if "nonce" not in asked:
            raise UnavailableError("a server of Hadoop has sent a challenge without a nonce")
        realm, nonce = asked.get("realm", ""), asked["nonce"]
        self.proof = b"rspauth=" + self._digest(realm, nonce, "").encode()
        return ",".join(
            [
                "charset=utf-8",
                f'username="{self._user}"',
                f'realm="{realm}"',
                f'nonce="{nonce}"',
                "nc=00000001",
                f'cnonce="{self._cnonce}"',
                f'digest-uri="{self._uri}"',
                "maxbuf=65536",
                f"response={self._digest(realm, nonce, 'AUTHENTICATE')}",
                "qop=auth",
            ]
        ).encode()

    def verify(self, token: bytes) -> None:
        """Check the server's last word: it knows the password, too.

        Raises:
            UnavailableError: it does not.
        """
        if not secrets.compare_digest(token.strip(), self.proof):
            raise UnavailableError("a server of Hadoop does not know the token that it is to know")

    def _digest(self, realm: str, nonce: str, method: str) -> str:
        first = _md5(f"{self._user}:{realm}:{self._password}".encode()).digest()
        a1 = _md5(first + f":{nonce}:{self._cnonce}".encode()).hexdigest()
        a2 = _md5(f"{method}:{self._uri}".encode()).hexdigest()
        return _md5(f"{a1}:{nonce}:00000001:{self._cnonce}:auth:{a2}".encode()).hexdigest()


def _md5(data: bytes) -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)  # what the protocol says
