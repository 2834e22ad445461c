"""kazoo's client as the state manager uses it: bounded attempts to connect, TLS, ACLs, and why it is refused."""

from __future__ import annotations

import contextlib
import logging
import ssl
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import make_digest_acl

from heronpy.address import join_address, split_address
from heronpy.errors import ConfigError, UsageError
from heronpy.statemgr._access import CREDENTIALS_KEY, Credentials, tls_refusal

# kazoo writes a warning per failed attempt, several a second in every process while the server is away. The state
# manager logs each transition once instead; what kazoo calls an error still comes through.
_kazoo_log = logging.getLogger("heronpy.statemgr.zookeeper.kazoo")
_kazoo_log.setLevel(logging.ERROR)

DEFAULT_PORT = 2181

# kazoo applies the jitter to the pause before, so with a backoff of 1 the pauses wander, and in the end to 0: every
# process of every topology was busy with connecting. A backoff that outweighs the jitter holds them at max_delay.
RECONNECT = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_jitter": 0.4, "max_delay": 0.3}


class _Refusals:
    """Why the servers refuse us, as far as it was not a server's being away."""

    def __init__(self) -> None:
        self.count = 0
        """How many attempts to connect have failed one after the other for a reason that no further one mends."""
        self.reason = ""
        self.password_refused = False

    def note(self, error: BaseException | None) -> None:
        reason = None if error is None else tls_refusal(error)
        self.count = 0 if reason is None else self.count + 1
        self.reason = reason or ""


class _TlsSocket(ssl.SSLSocket):
    """Notes that its certificate is refused: with TLS 1.3 that comes with the first answer, after the handshake."""

    refusals: _Refusals

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError as e:
            self.refusals.note(e)
            raise


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with a bound on each attempt to connect, and our own TLS.

    By default one unreachable server of several may take the whole session timeout, and the session is lost; and every
    CA of the system is trusted beside the one that was named.
    """

    def __init__(self, attempt_timeout_s: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self.refusals = _Refusals()
        self._attempt_timeout_s = attempt_timeout_s
        self._tls = tls
        if tls is not None:
            refusals = self.refusals
            tls.sslsocket_class = type("TlsSocket", (_TlsSocket,), {"refusals": refusals})

    def create_connection(self, *args: Any, timeout: float | None = None, **options: Any) -> Any:
        bound_s = self._attempt_timeout_s if timeout is None else min(timeout, self._attempt_timeout_s)
        try:
            connection = super().create_connection(*args, timeout=bound_s, **options)
            if self._tls is None:
                return connection
            connection.settimeout(bound_s)
            with contextlib.ExitStack() as on_error:
                on_error.callback(connection.close)
                wrapped = self._tls.wrap_socket(connection, server_hostname=options["hostname"])
                on_error.pop_all()
                return wrapped
        except OSError as e:
            self.refusals.note(e)
            raise

    def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
        # TLS may have decrypted more than was asked for; select() knows nothing of that, and a change would wait for
        # the next ping.
        ready = [one for one in rlist if isinstance(one, ssl.SSLSocket) and one.pending() > 0]
        if not ready:
            return super().select(rlist, wlist, xlist, timeout)
        others, writable, failed = super().select(rlist, wlist, xlist, 0)
        return [*ready, *(one for one in others if one not in ready)], writable, failed


def make_client(
    hosts: str, *, session_timeout_s: float, credentials: Credentials | None, tls: ssl.SSLContext | None
) -> KazooClient:
    """A client that is not started. Every node that it makes carries the ACL of its user, if it has one."""
    servers = hosts.count(",") + 1
    user = None if credentials is None else (credentials.user, credentials.password)
    client = KazooClient(
        hosts=hosts,
        timeout=session_timeout_s,
        handler=_Handler(max(0.1, session_timeout_s / (3 * servers)), tls),
        connection_retry=dict(RECONNECT),
        default_acl=None if user is None else [make_digest_acl(*user, all=True)],
        auth_data=None if user is None else [("digest", ":".join(user))],
        logger=_kazoo_log,
    )

    def note(state: str) -> None:
        if client.client_state == KeeperState.AUTH_FAILED:
            client.handler.refusals.password_refused = True
        elif state == KazooState.CONNECTED:
            client.handler.refusals.note(None)

    client.add_listener(note)
    return client


def refusal(client: KazooClient) -> str | None:
    """Why no server will ever take this client as it is, or None if one may."""
    refusals = client.handler.refusals
    if refusals.password_refused:
        return f"the user or password is refused ({CREDENTIALS_KEY})"
    return refusals.reason if refusals.count >= len(client.hosts) else None


def parse_connection(connection: str) -> tuple[str, str]:
    """`host:port,…` and the path after it.

    Raises:
        ConfigError: it is not that.
    """
    hosts, _, chroot = connection.partition("/")
    servers = [server.strip() for server in hosts.split(",")]
    try:
        addresses = [split_address(server, DEFAULT_PORT) for server in servers]
        if not all(port for _, port in addresses):
            raise UsageError("port 0")
    except UsageError as e:
        raise ConfigError(f"{connection!r} is not a ZooKeeper connection string: use host:port[,host:port…]") from e
    return ",".join(join_address(*address) for address in addresses), chroot
