"""What a store of live views that is kept by a server must do besides, as tests: `heronpy.testing.stores_kit`.

class TestMine(ServedStoresKit):
    @pytest.fixture
    def server(self): ...         # a `heronpy.testing.servers.Server` that runs

    @pytest.fixture
    def store(self, server):
        return MyStore(server.url)

    @pytest.fixture
    def refused(self, server): ...    # a store of the same kind with a wrong password, `swordfish`

    def lose_answers(self, patch):    # from now on commits are made, and their answers get lost
        patch.setattr(…)
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from heronpy.errors import UnavailableError
from heronpy.stores import Store, StoreContext, StoreReader
from heronpy.testing.servers import Server
from heronpy.testing.stores_kit import StoresKit, Write

PASSWORD = "swordfish"


class ServedStoresKit(StoresKit):
    """Tests for a store with a server. A subclass has the fixtures `server`, `store`, `refused`, and `lose_answers`."""

    def lose_answers(self, patch: pytest.MonkeyPatch) -> None:
        raise NotImplementedError

    @pytest.fixture
    def server(self) -> Server:
        raise NotImplementedError

    @pytest.fixture
    def refused(self, server: Server) -> Store:
        raise NotImplementedError

    @pytest.fixture
    def served(self, server: Server) -> Iterator[Server]:
        """The server, which runs again at the end."""
        yield server
        server.kill()
        server.start()

    def test_a_server_that_goes_away_loses_nothing(
        self, write: Write, reader: StoreReader, served: Server, context: StoreContext
    ) -> None:
        writer = write()
        writer.merge("a", 1)
        writer.commit()
        assert reader.get("a") == 1
        served.kill()
        writer.merge("a", 1)
        for _ in range(2):
            with pytest.raises(UnavailableError, match=f"{context.view}.*{served.port}") as error:
                writer.commit()
            assert "\n" not in str(error.value)
        with pytest.raises(UnavailableError):
            reader.get("a")
        with pytest.raises(UnavailableError):
            list(reader.items(0))
        writer.merge("a", 1)
        served.start()
        writer.commit()
        assert reader.get("a") == 3

    def test_a_writer_is_opened_and_waits_while_the_server_is_away(
        self, write: Write, reader: StoreReader, served: Server
    ) -> None:
        served.kill()
        writer = write()
        writer.merge("a", 1)
        with pytest.raises(UnavailableError):
            writer.commit()
        with pytest.raises(UnavailableError):
            reader.batches()
        served.start()
        writer.commit()
        assert reader.get("a") == 1

    @pytest.mark.long
    def test_a_server_that_hangs_is_waited_for_no_longer_than_a_bound(
        self, write: Write, reader: StoreReader, served: Server
    ) -> None:
        writer = write()
        writer.merge("a", 1)
        writer.commit()
        with frozen(served):
            writer.merge("a", 1)
            with pytest.raises(UnavailableError):
                writer.commit()
        writer.commit()
        assert reader.get("a") == 2

    @pytest.mark.parametrize("once", [False, True])
    def test_a_commit_whose_answer_was_lost_counts_once(
        self, write: Write, reader: StoreReader, monkeypatch: pytest.MonkeyPatch, once: bool
    ) -> None:
        writer = write()

        def commit() -> None:
            if once:
                writer.commit_once("run", 1)
            else:
                writer.commit()

        writer.merge("a", 1)
        with monkeypatch.context() as patch:
            self.lose_answers(patch)
            with pytest.raises(UnavailableError):
                commit()
        assert reader.get("a") == 1
        commit()
        assert reader.get("a") == 1
        writer.merge("a", 1)
        writer.commit()
        assert reader.get("a") == 2

    def test_a_predecessor_that_still_commits_is_not_overwritten(
        self, store: Store, context: StoreContext, reader: StoreReader
    ) -> None:
        together = threading.Barrier(2)

        def commit() -> None:
            with contextlib.closing(store.writer(context, "task-0")) as writer:
                for _ in range(25):
                    together.wait()
                    writer.merge("a", 1)
                    writer.commit()

        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(commit) for _ in range(2)]:
                done.result()
        assert reader.get("a") == 50

    def test_a_password_is_in_no_message_and_in_no_description(self, refused: Store, context: StoreContext) -> None:
        assert PASSWORD not in repr(refused)
        with contextlib.closing(refused.reader(context)) as reader, pytest.raises(UnavailableError) as error:
            reader.get("a")
        assert PASSWORD not in str(error.value)
        assert "password" in str(error.value)
        assert "\n" not in str(error.value)
        with contextlib.closing(refused.writer(context, "0")) as writer:
            writer.merge("a", 1)
            with pytest.raises(UnavailableError) as error:
                writer.commit()
        assert PASSWORD not in str(error.value)

    def test_a_description_travels(self, store: Store, context: StoreContext, reader: StoreReader) -> None:
        copy: Store = pickle.loads(pickle.dumps(store))
        with contextlib.closing(copy.writer(context, "0")) as writer:
            writer.merge("a", 1)
            writer.commit()
        assert reader.get("a") == 1

    def test_long_keys_and_values(self, write: Write, reader: StoreReader) -> None:
        writer = write()
        keys = ["k" * n for n in (255, 256, 257, 10_000)] + ["k" * 9_999 + "x"]
        for _ in range(2):
            for n, key in enumerate(keys):
                writer.merge(key, n + 1)
            writer.commit()
        assert [reader.get(key) for key in keys] == [2, 4, 6, 8, 10]
        assert dict(reader.items(0)) == {key: 2 * (n + 1) for n, key in enumerate(keys)}
        reader.replace(0, [(key, 1) for key in keys])
        assert dict(reader.items(0)) == dict.fromkeys(keys, 1)

    def test_views_of_one_server_do_not_meet(self, write: Write, reader: StoreReader, context: StoreContext) -> None:
        other = replace(context, view=f"{context.view}-2")
        for number, of in ((1, context), (10, other)):
            writer = write("0", of)
            writer.merge("a", number)
            writer.commit()
        assert (reader.get("a"), reader.drop(0), reader.get("a")) == (1, 1, None)
        writer = write("0", other)
        writer.merge("a", 1)
        writer.commit()
        assert reader.get("a") is None


@contextlib.contextmanager
def frozen(server: Server) -> Iterator[None]:
    """Nothing answers in the block."""
    server.freeze()
    try:
        yield
    finally:
        server.thaw()
