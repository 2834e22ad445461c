"""What the command line makes of its words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.cli import run
from heronpy.cli.parts import Place, end_options, read_properties, resolve_target, shown_duration
from heronpy.errors import NotFoundError, UsageError


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("local f.py C", "local f.py C --"),
        ("local f.py C --other -x 1", "local f.py C -- --other -x 1"),
        ("--wait local f.py C name", "--wait local f.py C -- name"),
        ("local --opt v f.py --wait C -v", "local --opt v f.py --wait C -- -v"),
        ("local --opt=v f.py - -- --opt x", "local --opt=v f.py - -- --opt x"),
        ("local f.py C -- x", "local f.py C -- x"),
        ("local -- f.py C -x", "local -- f.py C -x"),
        ("local f.py", "local f.py"),
    ],
)
def test_options_end_at_the_class(args: str, expected: str) -> None:
    assert end_options(args.split(), {"--opt", "--wait", "-v"}, {"--opt"}) == expected.split()


@pytest.mark.parametrize("late", ["--wait", "--opt v", "--opt=v"])
def test_an_option_of_submit_after_the_class_is_no_silent_argument_of_the_topology(late: str) -> None:
    with pytest.raises(UsageError, match="before FILE"):
        end_options(f"local f.py C {late}".split(), {"--opt", "--wait"}, {"--opt"})


def test_a_place_has_up_to_three_parts_and_empty_ones_mean_the_default() -> None:
    assert Place.parse("local") == Place("local", None, None)
    assert Place.parse("local/ada") == Place("local", "ada", None)
    assert Place.parse("local//prod") == Place("local", None, "prod")
    for wrong in ("", "/ada", "a/b/c/d"):
        with pytest.raises(UsageError, match="CLUSTER"):
            Place.parse(wrong)


def test_properties_are_typed_as_in_the_files() -> None:
    given = ["a=1", "b=true", "c=x=y", "d=", "e= 2.5 ", "f=a: b: c"]
    assert read_properties(given) == {"a": 1, "b": True, "c": "x=y", "d": None, "e": 2.5, "f": "a: b: c"}
    with pytest.raises(UsageError, match="KEY=VALUE"):
        read_properties(["a"])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--requirements r.txt --containers 2", "--requirements needs --code FILE"),
        ("--class Words --containers 2", "--class needs --code FILE"),
        ("--code f.py --containers 2", "--containers does not work with --code"),
        ("--containers 2 --timeout -1", "Invalid value for '--timeout'"),
    ],
)
def test_options_of_update_that_would_have_no_effect_are_refused(
    options: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERON_HOME", str(tmp_path))
    command = [sys.executable, "-m", "heronpy.cli", "update", "words", *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line[: len(error) + 7]) == (2, f"heron: {error}")


def test_durations_have_two_units() -> None:
    assert [shown_duration(s) for s in (0, 59.9, 61, 3600, 90061)] == [
        "0 s",
        "59 s",
        "1 min 1 s",
        "1 h 0 min",
        "1 d 1 h",
    ]


def test_two_words_are_cluster_and_name_or_name_and_process(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no topology 'words' runs as local/"):
        resolve_target(["local", "words"], home=tmp_path, extra="INSTANCE")
    with pytest.raises(NotFoundError, match=r"no topology 'words' runs$"):
        resolve_target(["words", "stmgr-1"], home=tmp_path, extra="INSTANCE")


def test_too_many_words_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too many arguments: 'c'"):
        resolve_target(["a", "b", "c"], home=tmp_path)


def test_looking_for_a_topology_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        resolve_target(["local", "words"], home=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_short_command_waits_for_no_import_that_it_does_not_need() -> None:
    code = "import sys; from heronpy.cli import run; run(['version']); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    ).stdout
    assert loaded.startswith("heronpy ")
    assert not {"grpc", "kazoo", "numpy", "rich", "yaml", "heronpy.api"} & set(loaded.split())


@pytest.mark.parametrize("verb", ["logs", "metrics", "stacks", "physical-plan"])
def test_what_an_api_server_does_not_have_is_refused_where_one_is_meant(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERON_SERVICE_URL", "https://heron.example")
    assert run([verb, "local/ada", "Words"]) == 2
    assert f"`heron {verb}` does not work through an API server" in capsys.readouterr().err
    assert run([verb, "--help"]) == 0


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--config-path", ("submit", "--config-path", "/nonexistent", "local", "words.py", "Words")),
        ("--config-path", ("update", "--config-path", "/nonexistent", "--containers", "2", "local", "Words")),
        ("--config-property", ("update", "--config-property", "a=b", "--code", "words.py", "local", "Words")),
        ("--requirements", ("update", "--requirements", "r.txt", "--code", "words.py", "local", "Words")),
        ("--config-property", ("kill", "--config-property", "a=b", "local", "Words")),
        ("--config-path", ("deactivate", "--config-path", "/nonexistent", "local", "Words")),
        ("--config-path", ("activate", "--config-path", "/nonexistent", "local", "Words")),
        ("--config-path", ("restart", "--config-path", "/nonexistent", "local", "Words")),
        ("--config-path", ("topologies", "--config-path", "/nonexistent")),
        ("--config", ("status", "--config", "local", "Words")),
    ],
)
def test_no_option_is_dropped_on_the_way_to_an_api_server(
    option: str,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    token = tmp_path / "service.token"
    token.touch(0o600)
    token.write_text("token\n")
    monkeypatch.setenv("HERON_HOME", str(tmp_path))
    monkeypatch.setenv("HERON_SERVICE_URL", "http://127.0.0.1:1")
    assert run(words) == 2
    assert f"{option} does not work through an API server" in capsys.readouterr().err


def test_the_verbs_of_state_need_access_and_have_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["state", "show", "--help"]) == 0
    monkeypatch.setenv("HERON_SERVICE_URL", "http://127.0.0.1:1")
    assert run(["state", "--help"]) == 0
    assert run(["state", "show", "Words"]) == 2
    assert "`heron state show` does not work through an API server" in capsys.readouterr().err
