"""A network that loses the answer to a commit: the server has executed it, and its client is not told."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator


class LossyProxy(socketserver.ThreadingTCPServer):
    """Passes connections on to a port, and cuts those in which a commit is answered, as often as it is told.

    A commit is a request that contains `commit`. The connection is cut when the server has answered it.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, commit: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = ("127.0.0.1", port)
        self.commit = commit
        self.to_lose = 0
        """So many answers are lost from now on."""
        self.lost = 0
        self.executed: Callable[[], object] = lambda: None
        """Called when a commit was executed whose answer is lost."""
        self._mutex = threading.Lock()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def loses(self, request: bytes) -> bool:
        """Whether the answer to a request is to be lost; counts it then."""
        with self._mutex:
            if self.commit not in request or self.lost >= self.to_lose:
                return False
            self.lost += 1
            return True


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        proxy, client = self.server, self.request
        assert isinstance(proxy, LossyProxy)
        cut = threading.Event()
        with contextlib.suppress(OSError), socket.create_connection(proxy.target) as server:
            back = threading.Thread(target=self._answer, args=(proxy, server, client, cut), daemon=True)
            back.start()
            while request := client.recv(1 << 20):
                if proxy.loses(request):
                    cut.set()
                server.sendall(request)
            server.shutdown(socket.SHUT_WR)
            back.join()

    @staticmethod
    def _answer(proxy: LossyProxy, server: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while answer := server.recv(1 << 20):
                if cut.is_set():
                    proxy.executed()
                    break
                client.sendall(answer)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def lossy_proxy(port: int, commit: bytes) -> Iterator[LossyProxy]:
    """One that runs for the block."""
    with LossyProxy(port, commit) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
