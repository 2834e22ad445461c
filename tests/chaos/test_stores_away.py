"""An object store and a Redis that are away for a while: an archive, a sink and a live view are exact afterwards."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import TopologyBuilder
from heronpy.archive import Archive
from heronpy.connectors import JsonLinesSink, TextFile
from heronpy.filesystem import UrlPath, location
from heronpy.stores import RedisStore, StoreContext
from heronpy.streamlet import Builder, Config, Sum
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync
from heronpy.testing.servers import RedisServer, S3Server, redis_missing, s3_missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(s3_missing() or redis_missing()), reason=s3_missing() or redis_missing() or ""),
]

WITHIN_S = 400.0
AWAY_S = 35.0
LINES = 3000
KEYS = 20
BATCH_S = 1000


class Run:
    """A small topology that runs, its input, and what has come of that."""

    def __init__(self, directory: Path, s3: S3Server, redis: RedisServer) -> None:
        self.input, self.count = directory / "in.txt", 0
        self.servers = s3, redis
        place = location("it", s3.url("away"))
        assert isinstance(place, UrlPath)
        self.place = place
        self.out = s3.directory / "buckets" / "away" / "out"
        self.store = RedisStore(redis.url)
        self.append()

    def append(self) -> None:
        with self.input.open("a") as f:
            f.write("".join(f"{self.count + n}\n" for n in range(LINES)))
        self.count += LINES

    def topology(self) -> type[Any]:
        builder = Builder()
        lines = builder.new_source(TextFile(self.input), discover_every_s=0.1).set_name("numbers")
        numbers = lines.map(int).event_time(float).archive()
        numbers.to_sink(JsonLinesSink((self.place / "out").url))
        numbers.map(lambda n: (n % KEYS, 1)).to_store("ones", Sum(), self.store)
        config = Config()
        config.set_delivery_semantics(Config.EFFECTIVELY_ONCE)
        config.set_pipeline((self.place / "job").url, batch_length=BATCH_S)
        config.set_user_config("topology.stateful.checkpoint.interval.seconds", 0.5)
        topology = TopologyBuilder("away")
        builder.build(topology, config)
        return topology.build()

    def written(self) -> Counter[int]:
        return Counter(json.loads(line) for file in self.out.glob("part-*") for line in file.read_text().splitlines())

    def check_exact(self) -> None:
        """Each number is in the sink and in the view once, and in the archive under one id."""
        written = self.written()
        assert not (twice := {n for n, times in written.items() if times > 1}), twice
        assert written.keys() == set(range(self.count)), f"{len(written)} of {self.count} so far"
        context = StoreContext(view="ones", monoid=Sum(), directory=None)
        with contextlib.closing(self.store.reader(context)) as reader:
            view = Counter({(batch, key): n for batch in reader.batches() for key, n in reader.items(batch)})
        assert view == Counter((n // BATCH_S, n % KEYS) for n in range(self.count))
        archive = Archive(self.place / "job" / "archive" / "events")
        files = [file for files in archive.batches().values() for file in files]
        chunks = [chunk for split in archive.splits(files, 1 << 20) for chunk in split.read(refuse)]
        rows = {(id, n) for chunk in chunks for id, n in zip(chunk.ids.to_pylist(), chunk.values, strict=True)}
        assert len({id for id, _ in rows}) == len(rows)
        assert sorted(n for _, n in rows) == list(range(self.count))


def refuse(where: str, row: Any, reason: str) -> None:
    raise AssertionError(f"{where}: {reason}")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    for name, value in S3Server.credentials.items():
        monkeypatch.setenv(name, value)
    with S3Server(tmp_path / "s3") as s3, RedisServer(tmp_path / "redis") as redis:
        yield Run(tmp_path, s3, redis)


@pytest.fixture
def topology(run: Run) -> Iterator[TopologyHandle]:
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        yield cluster.submit(run.topology()).wait_running()


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_is_lost_and_nothing_is_there_twice_though_the_stores_are_away(
    run: Run, topology: TopologyHandle, killed: bool
) -> None:
    eventually_sync(run.check_exact, within_s=WITHIN_S)
    run.append()
    for server in run.servers:
        if killed:
            server.kill()
        else:
            server.freeze()
    before = run.written()
    for _ in range(5):
        run.append()
        time.sleep(AWAY_S / 5)  # the outage itself
    assert run.written() == before, "nothing was committed meanwhile"
    for server in run.servers:
        if killed:
            server.start()
        else:
            server.thaw()
    run.append()
    eventually_sync(run.check_exact, within_s=WITHIN_S)
