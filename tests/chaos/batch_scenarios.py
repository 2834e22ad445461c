"""What the batch campaign begins with, and the processes that run its jobs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batch_program import Found, archive, events, found, sums_of
from batch_server import KILLED
from faulty_files import DRIVER, TASK, FaultyFiles
from faulty_store import FaultyStore

from heronpy.filesystem import Location, UrlPath, files_of

CLI_WITHIN_S = 900.0
STOP_WITHIN_S = 120.0
Answer = dict[str, Any]


Steps = dict[Any, dict[str, list[int]]]
"""By role and name, the numbers of the calls of that name in a run without faults."""


class Server:
    """A `batch_server.py`; started when it is needed, and again when it has been killed."""

    def __init__(self, env: Mapping[str, str], master: str) -> None:
        self._env = {**os.environ, **env}
        self._master = master
        self._process: subprocess.Popen[str] | None = None
        self.scratch = Path("/nonexistent")
        """Of its Spark."""

    def start(self) -> None:
        """See that it runs."""
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, str(Path(__file__).with_name("batch_server.py")), self._master]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._env,
                text=True,
            )
            line = self._lines().readline()
            assert line, f"no Spark on {self._master}"
            self.scratch = Path(json.loads(line)["scratch"])

    def ask(self, command: Mapping[str, Any]) -> Answer:
        """Have it do something; `KILLED` if it died."""
        self.start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        line = self._lines().readline()
        if not line:
            process.wait()
            return dict(KILLED)
        answer: Answer = json.loads(line)
        return answer

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:  # its JVM is gone, and PySpark waits for it
                self._process.kill()
                self._process.wait()
            self._process = None

    def _lines(self) -> Any:
        assert self._process is not None
        return self._process.stdout


@dataclass
class Scenario:
    """A job's directory, what a run is to make of it, and by which calls."""

    name: str
    template: Location
    length_s: float
    batches: int
    compact: bool = False
    before: Found = field(default_factory=dict)
    after: Found = field(default_factory=dict)
    steps: Steps = field(default_factory=dict)

    def command(self, directory: Location, *, compact: bool | None = None, again: bool = False) -> dict[str, Any]:
        """What makes a server run it."""
        return {
            "directory": text_of(directory),
            "length_s": self.length_s,
            "compact": self.compact if compact is None else compact,
            "until_ms": round(1000 * self.length_s * self.batches),
            "batches": list(range(self.batches)) if again else None,
        }

    def found(self, directory: Location) -> Found:
        return found(directory, self.length_s)

    def by_cli(self, directory: Location, env: Mapping[str, str]) -> Answer:
        """The same run by `heron pipeline run`, in a process of its own."""
        until = str(self.length_s * self.batches)
        place = text_of(directory)
        program = [str(Path(__file__).with_name("batch_program.py")), "campaign", place, str(self.length_s)]
        options = ["--until", until, "--master", "local[2,2]", "--conf", "spark.driver.memory=512m"]
        options += ["--conf", "spark.executorEnv.AWS_SDK_UA_APP_ID=task"]
        heron = [sys.executable, "-m", "heronpy.cli", "pipeline", "run", *options]
        done = subprocess.run(
            [*heron, *program],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=CLI_WITHIN_S,
            check=False,
        )
        if done.returncode == -9:
            return dict(KILLED)
        lines = done.stderr.splitlines()
        said = lines[-1] if lines else ""
        error = "" if done.returncode == 0 else "HeronError" if said.startswith("heron: ") else "nothing said"
        return {"error": error, "code": done.returncode, "line": said}


def text_of(directory: Location) -> str:
    """What opens it again."""
    return directory.url if isinstance(directory, UrlPath) else str(directory)


class Place(ABC):
    """Where jobs have their files, and where calls for them can be counted."""

    def __init__(self, root: Location) -> None:
        self.root = root

    @abstractmethod
    def copy(self, template: Location, name: str) -> Location:
        """A job's files once more, as another job's."""

    @abstractmethod
    def keep(self, directory: Location, to: Path) -> None:
        """Copy a job's files to a directory of this host, to be looked at."""

    @abstractmethod
    def watch(self, directory: Location | None) -> None:
        """Count calls for a job's files, from 0; nothing happens to them."""

    @abstractmethod
    def steps(self) -> Steps:
        """The calls since `watch`."""


class Disk(Place):
    """A directory; calls are those of files."""

    def __init__(self, root: Path, layer: FaultyFiles) -> None:
        super().__init__(root)
        self._layer = layer

    def copy(self, template: Location, name: str) -> Location:
        assert isinstance(template, Path)
        assert isinstance(self.root, Path)
        return Path(shutil.copytree(template, self.root / name))

    def keep(self, directory: Location, to: Path) -> None:
        shutil.copytree(str(directory), to, dirs_exist_ok=True)

    def watch(self, directory: Location | None) -> None:
        self._layer.watch(*([] if directory is None else [Path(str(directory))]))
        self._layer.trace(True)

    def steps(self) -> Steps:
        steps: Steps = {DRIVER: defaultdict(list), TASK: defaultdict(list)}
        counts = {DRIVER: 0, TASK: 0}
        for call in self._layer.trace(False):
            role = DRIVER if call.startswith("driver ") else TASK
            counts[role] += 1
            steps[role][call].append(counts[role])
        return steps


class Bucket(Place):
    """A store; calls are requests."""

    def __init__(self, root: UrlPath, store: FaultyStore, folders: Sequence[Path]) -> None:
        """Describe it.

        Args:
            root: its URL, by way of
            store: where calls can be counted.
            folders: where the server has objects, and what it knows of them.
        """
        super().__init__(root)
        self._store, self._folders = store, folders

    def copy(self, template: Location, name: str) -> Location:
        for folder in self._folders:  # a tenth of what it costs by requests
            shutil.copytree(folder / str(template.inner), folder / name)  # type: ignore[union-attr]  # one of a store
        return self.root / name

    def keep(self, directory: Location, to: Path) -> None:
        files = files_of(directory)
        for path in files.below(directory):
            (to / path.inner).parent.mkdir(parents=True, exist_ok=True)
            (to / path.inner).write_bytes(files.read(path))

    def watch(self, directory: Location | None) -> None:
        self._store.watch("" if directory is None else directory.inner)  # type: ignore[union-attr]  # it is one of a store

    def steps(self) -> Steps:
        steps: Steps = defaultdict(lambda: defaultdict(list))
        for name in self._store.trace():
            of = steps[name.partition(" ")[0]][name]
            of.append(len(of) + 1)
        return steps


def scenarios(place: Place, server: Server) -> Sequence[Scenario]:
    """All of them, each run once without faults. What plain Python can count is as plain Python counts it."""
    root = place.root
    first = Scenario("nothing is done", root / "first", 10, 4)
    late = Scenario("late files", root / "late", 10, 4)
    compacted = Scenario("files are merged", root / "compacted", 10, 4, compact=True)
    many = Scenario("a roll-up is made", root / "many", 2, 18)
    for scenario in (first, late, compacted, many):
        commits = [events(commit, scenario.length_s, scenario.batches) for commit in range(3)]
        for commit in commits[:2]:
            archive(scenario.template, commit, scenario.length_s)
        if scenario is late:
            answer = server.ask(scenario.command(scenario.template))
            assert not answer["error"], answer
        archive(scenario.template, commits[2], scenario.length_s)
        scenario.before = scenario.found(scenario.template)
        work = place.copy(scenario.template, "work")
        place.watch(work)
        answer = server.ask(scenario.command(work))
        assert not answer["error"], answer
        scenario.steps = place.steps()
        scenario.after = scenario.found(work)
        files_of(work).delete_folder(work)
        sums = {n: {repr(key): value for key, value in rows.items()} for n, rows in _sums(scenario, commits).items()}
        assert {n: scenario.after["batches"][n]["sums"] for n in sums} == sums
    return first, first, late, late, compacted, compacted, many


def _sums(scenario: Scenario, commits: Any) -> dict[int, dict[str, int]]:
    return sums_of(*commits, length_s=scenario.length_s)
