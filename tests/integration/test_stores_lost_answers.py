"""Live views whose server commits, and whose answer is lost: on the way, or because the server dies before it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from lossy_proxy import LossyProxy, lossy_proxy

from heronpy.errors import UnavailableError
from heronpy.stores import PostgresStore, RedisStore, Store, StoreContext, StoreWriter
from heronpy.streamlet import Sum
from heronpy.testing.postgres import PostgresServer, postgres_missing
from heronpy.testing.servers import RedisServer, Server, redis_missing


@dataclass(frozen=True)
class Kind:
    """A store with a server, and what its clients send to commit."""

    server: Callable[..., Server]
    store: Callable[[int], Store]
    commit: bytes
    missing: Callable[[], str | None]


KINDS = {
    "redis": Kind(RedisServer, lambda port: RedisStore(f"redis://127.0.0.1:{port}/0"), b"EXEC", redis_missing),
    "postgres": Kind(
        PostgresServer,
        lambda port: PostgresStore(f"postgresql://postgres@127.0.0.1:{port}/postgres"),
        b"COMMIT\0",  # and not READ COMMITTED
        postgres_missing,
    ),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    kind = KINDS[request.param]
    if reason := kind.missing():
        pytest.skip(reason)
    return kind


@pytest.fixture(scope="module")
def server(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with kind.server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def proxy(kind: Kind, server: Server) -> Iterator[LossyProxy]:
    with lossy_proxy(server.port, kind.commit) as proxy:
        yield proxy


@pytest.fixture
def context(request: pytest.FixtureRequest) -> StoreContext:
    return StoreContext(view=f"view-{abs(hash(request.node.name))}", monoid=Sum(), directory=None)


@pytest.fixture
def write(kind: Kind, proxy: LossyProxy, context: StoreContext) -> Iterator[Callable[[], StoreWriter]]:
    """Opens writers of one task, as a new process of it does."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(kind.store(proxy.port).writer(context, "0")))


def stored(kind: Kind, server: Server, context: StoreContext) -> dict[str, int]:
    with contextlib.closing(kind.store(server.port).reader(context)) as reader:
        return {key: value for batch in reader.batches() for key, value in reader.items(batch)}


@pytest.mark.parametrize(
    ("answers", "dies"),
    [(1, False), (3, True), *(pytest.param(*each, marks=pytest.mark.long) for each in ((3, False), (1, True)))],
)
def test_at_least_once_a_commit_whose_answer_is_lost_counts_once_while_its_task_lives(
    kind: Kind,
    server: Server,
    proxy: LossyProxy,
    write: Callable[[], StoreWriter],
    context: StoreContext,
    dies: bool,
    answers: int,
) -> None:
    writer = write()
    writer.merge("a", 1)
    writer.commit()
    proxy.to_lose, proxy.executed = answers, server.kill if dies else lambda: None
    for n in range(answers):
        writer.merge("a", 10)  # the first is there, and the others come after it
        with contextlib.suppress(UnavailableError):  # Redis's client may have asked again
            writer.commit()
        if dies:
            server.start()
        if n == 0:
            assert stored(kind, server, context) == {"a": 11}
    assert proxy.lost == answers
    writer.commit()
    assert stored(kind, server, context) == {"a": 1 + 10 * answers}


@pytest.mark.parametrize(
    ("restarts", "dies"),
    [
        (False, False),
        (True, True),
        *(pytest.param(*each, marks=pytest.mark.long) for each in ((True, False), (False, True))),
    ],
)
def test_effectively_once_a_commit_whose_answer_is_lost_counts_once_whoever_repeats_it(
    kind: Kind,
    server: Server,
    proxy: LossyProxy,
    write: Callable[[], StoreWriter],
    context: StoreContext,
    dies: bool,
    restarts: bool,
) -> None:
    writer = write()
    for checkpoint in range(1, 4):
        proxy.to_lose, proxy.executed = proxy.lost + (checkpoint > 1), server.kill if dies else lambda: None
        writer.merge("a", 1)
        if checkpoint > 1:
            with contextlib.suppress(UnavailableError):
                writer.commit_once("run", checkpoint)
            if dies:
                server.start()
            if restarts:  # and gives it what the checkpoint has
                writer = write()
                writer.merge("a", 1)
        writer.commit_once("run", checkpoint)
        assert stored(kind, server, context) == {"a": checkpoint}
    assert proxy.lost == 2
