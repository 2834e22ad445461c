"""The examples, submitted with the command of their docstrings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from heron_command import heron_command

from heronpy.archive import Archive
from heronpy.examples import demo, demo_state, random_word_count, results, rtac, rtac_events, word_count
from heronpy.testing import eventually_sync

Heron = Callable[..., str]


@pytest.fixture
def heron(tmp_path: Path) -> Iterator[Heron]:
    """Runs `heron …`, gives its output, and kills what was submitted."""
    home = tmp_path / "home"
    submitted: list[str] = []

    def run(*args: object) -> str:
        if args[0] == "submit":
            name = [*args[args.index("-") + 1 :], "Words"][0]  # the README's program names itself
            submitted.append(str(name))
        done = heron_command(*map(str, args), home=home, cwd=Path.cwd())
        assert done.returncode == 0, f"{args}: {done.stdout}{done.stderr}"
        return done.stdout

    yield run
    for name in submitted:
        heron_command("kill", name, home=home)


def command_of(module: object) -> list[str]:
    """The words between `submit local` and the topology's name in a module's docstring."""
    found = re.search(r"heron submit local (\S+) - \S+", module.__doc__ or "")
    assert found, f"{module} does not say how to run it"
    return ["submit", "local", "--wait", "--timeout", "240", found[1], "-"]


def await_results(output: Path, parts: int) -> list[list[str]]:
    def all_there() -> None:
        assert set(results.finished(output)) == set(range(parts))

    eventually_sync(all_there)
    return results.read_results(output)


@pytest.mark.long  # the demo counts exactly, and what two containers add is shown by tests/chaos/test_deaths.py
def test_word_count_over_two_containers_counts_exactly_as_the_shell_does(heron: Heron, tmp_path: Path):
    path = tmp_path / "text"
    demo.make_input(path, size_bytes=400_000)
    other = tmp_path / "other"
    other.write_bytes(b"no newline at the end, \xc3\xa9t\xc3\xa9 AND\r\n\r\nCase and\tcase")
    output = tmp_path / "counts"
    tasks = ["--spouts", "2", "--splits", "2", "--counts", "3", "--containers", "2"]
    heron(*command_of(word_count), "Words", "--input", path, other, "--output", output, *tasks)
    await_results(output, parts=3)
    demo.verify(demo.counted(output), demo.expected_counts(path) + demo.expected_counts(other))


@pytest.mark.long  # tests/unit/test_examples_rtac.py shows the same in the simulator
def test_rtac_counts_the_different_users_of_every_second_and_event_exactly(heron: Heron, tmp_path: Path):
    events = list(rtac_events.random_events(5000, users=40, seconds=7, seed=11))
    path = tmp_path / "events.jsonl"
    rtac_events.write_events(path, iter(events))
    with path.open("a") as f:
        f.write("this is not an event\n")
    users = defaultdict(set)
    for event in events:
        users[int(event["timestamp"]), event["event"]].add(event["user_id"])
    output = tmp_path / "numbers"
    tasks = ["--spouts", "2", "--distributors", "2", "--user-counts", "2", "--aggregators", "2"]
    heron(*command_of(rtac), "Active", "--input", path, "--output", output, *tasks)
    rows = {(int(second), event): int(count) for second, event, count in await_results(output, parts=2)}
    assert rows == {key: len(of) for key, of in users.items()}


@pytest.mark.long
def test_random_word_count_runs_and_is_shown(heron: Heron):
    heron(*command_of(random_word_count), "Random", "--spouts", "1", "--bolts", "2", "--containers", "2")
    assert "Random" in heron("status", "Random")


def readme_commands(program: str) -> list[list[str]]:
    """The words of the `heron` commands of the README that are about a program, or a name that it has."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    commands = [line.partition("#")[0].split()[1:] for line in readme.splitlines() if line.startswith("heron ")]
    return [words for words in commands if program in words]


def readme_program(imports: str) -> str:
    """The program of the README that imports from a package."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    [code] = [
        code for code in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if f"from {imports} import" in code
    ]
    return str(code)


def test_the_topology_of_the_readme_runs_with_the_commands_of_the_readme(
    heron: Heron, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "topology.py"
    script.write_text(readme_program("heronpy.api"))
    commands = readme_commands("Counting")
    assert commands[0] == ["submit", "--wait", "local", "topology.py", "-", "Counting"]
    heron("submit", "local", "--wait", "--timeout", "240", str(script), "-", "Counting")
    [kill] = [words for words in commands if words[0] == "kill"]
    others = [words for words in commands[1:] if words is not kill]
    assert [words[0] for words in others] == [
        "status",
        "logs",
        "update",
        "deactivate",
        "top",
        "log-level",
        "stacks",
        "viz",
    ]
    for words in others:
        heron(*words)
    assert json.loads((tmp_path / "board.json").read_text())["panels"]
    heron(*kill)
    assert "Counting" not in heron("topologies")


@pytest.mark.long
@pytest.mark.spark
def test_the_streamlet_program_of_the_readme_counts_live_and_in_batch(
    heron: Heron, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.py").write_text(readme_program("heronpy.streamlet"))
    with (tmp_path / "lines-1.jsonl").open("w") as f:
        for n in range(1000):
            f.write(json.dumps({"timestamp": 1_700_000_000 + n / 4, "text": "the cow jumped over the moon"}) + "\n")
    live, batch = readme_commands("words.py")
    heron(*live)

    def archived() -> None:
        archive = Archive(tmp_path / "words" / "archive" / "events")
        assert archive.exists
        assert archive.complete_before_ms() is None

    eventually_sync(archived)
    heron(*batch)
    commands = {words[1]: words for words in readme_commands("Words")}
    assert set(commands) == {"query", "reconcile", "status", "export"}
    assert heron(*commands["query"]).strip() == "2000"
    assert "drift 0" in heron(*commands["reconcile"])
    assert "5 batches done" in heron(*commands["status"])
    heron(*commands["export"])
    rows = pq.read_table(tmp_path / "counts.parquet").to_pylist()
    words = dict.fromkeys(["cow", "jumped", "over", "moon"], 1000) | {"the": 2000}
    assert sorted((row["key"], row["value"]) for row in rows) == sorted(words.items())
    heron("kill", "Words")


def test_an_example_says_what_is_wrong_with_its_arguments(tmp_path: Path):
    wrong = subprocess.run(
        [sys.executable, "-m", "heronpy.examples.word_count", "W", "--input", "nowhere", "--output", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert wrong.returncode == 2
    assert wrong.stderr.splitlines()[-1] == "word_count: error: --input: nowhere is not a file"


def test_the_demo_verifies_and_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(demo, "INPUT_BYTES", 300_000)
    build = tmp_path / "demo"
    demo.main(["--build", str(build)])
    assert demo.counted(build / "counts") == Counter(demo.expected_counts(build / "input.txt"))
    assert not list((build / "home").glob("topologies/*/*/*/*"))


@pytest.mark.long
def test_the_demo_of_state_is_exact_though_processes_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(demo_state, "INPUT_BYTES", 20_000_000)
    build = tmp_path / "demo"
    demo_state.main(["--build", str(build)])
    assert demo.counted(build / "counts") == Counter(demo.expected_counts(build / "input.txt"))
    assert capsys.readouterr().out.count("kill -9") == len(demo_state.VICTIMS)
    assert not list((build / "home").glob("topologies/*/*/*/*"))
