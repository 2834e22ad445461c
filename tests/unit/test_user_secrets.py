"""Secrets of user code: what a configuration may say, how values are read, and where they are not seen."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from pathlib import Path
from typing import Any

import heron_scheduler
import pytest
from msgspec import structs

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.container import Bootstrap, bootstrap_document, make_directory
from heronpy.errors import ConfigError, HeronError, NotFoundError, UntrustedError
from heronpy.host import PASSED_ENV, SERVICE, child_environment
from heronpy.loader import Definition
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.security import private_directory, write_secret
from heronpy.submit import prepare
from heronpy.submit.parts import renew_secrets
from heronpy.testing import Simulator
from heronpy.usersecrets import (
    MOUNT_ENV,
    MaskedLogs,
    Secrets,
    check_used,
    load_secrets,
    read_secrets,
    references_of,
    store_secrets,
)

VALUE = "pass'wörd 7"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "db-password"
    path.touch(mode=0o600)
    path.write_text(f"{VALUE}\n")
    return path


def launch_of(directory: Path, **secrets: str) -> Launch:
    made = Launch(
        topology="words",
        topology_id="words-1",
        cluster="local",
        role="me",
        environ="default",
        statemgr=StatemgrSpec(root=str(directory / "state")),
        dir=directory / "words",
        secrets=references_of({"topology.secrets": secrets}),
    )
    made = dataclasses.replace(
        made, config=structs.replace(made.config, security=structs.replace(made.config.security, tls=False))
    )
    made.save()
    return made


def test_references_are_read_where_they_lead(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "of the environment")
    declared = {"db": f"file:{file}", "key": "env:API_KEY", "tls": "kubernetes:my-secret/tls.key"}
    references = references_of({"topology.secrets": declared})
    assert references == declared
    assert read_secrets(references) == {"db": VALUE, "key": "of the environment"}
    assert references_of({}) == {}


@pytest.mark.parametrize(
    "declared",
    ["swordfish", {"db": "swordfish"}, {"db": 7}, {"../db": "env:X"}, {"db": "env:swordfish x"}, {"db": "file:"}],
)
def test_what_is_no_reference_is_refused_and_not_repeated(declared: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        references_of({"topology.secrets": declared})
    assert ("swordfish" in str(refused.value), "topology.secrets" in str(refused.value)) == (False, True)


def test_what_cannot_be_read_is_one_line(tmp_path: Path, file: Path) -> None:
    (tmp_path / "binary").touch(mode=0o600)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").touch(mode=0o600)
    os.mkfifo(tmp_path / "pipe", 0o600)
    file.chmod(0o644)
    for reference, kind, message in (
        (f"file:{tmp_path}/none", NotFoundError, "there is no file"),
        ("env:NO_SUCH_VARIABLE", NotFoundError, "no variable NO_SUCH_VARIABLE"),
        (f"file:{file}", UntrustedError, "chmod 600"),
        (f"file:{tmp_path}", ConfigError, "secret 'db'"),
        (f"file:{tmp_path}/binary", ConfigError, "not text"),
        (f"file:{tmp_path}/empty", ConfigError, "is empty"),
        (f"file:{tmp_path}/pipe", ConfigError, "is not a file"),
    ):
        with pytest.raises(kind, match=message) as refused:
            read_secrets({"db": reference})
        assert "\n" not in str(refused.value)


def test_values_are_filled_in_and_hidden_again() -> None:
    secrets = Secrets({"db": VALUE, "password": "x", "pem": "-----BEGIN-----\nabcdef\n-----END-----", "short": "a"})
    config: dict[str, Any] = {"url": "x://me:${secret:db}@h", "more": [{"a": "${secret:short}"}], "n": 7}
    secrets.fill(config)
    assert config == {"url": f"x://me:{VALUE}@h", "more": [{"a": "a"}], "n": 7}
    assert secrets["db"] == VALUE
    assert VALUE not in repr(secrets)
    masked = secrets.masked(f"cannot connect to {VALUE}: {ValueError(VALUE)!r}, abcdef, a")
    assert masked == 'cannot connect to ********: ValueError("********"), ********, a'
    with pytest.raises(ConfigError, match="did you mean 'password'"):
        secrets["pasword"]
    record = logging.LogRecord("x", logging.INFO, "", 0, "with %s", (VALUE,), None)
    assert MaskedLogs(logging.Formatter("%(message)s"), secrets).format(record) == "with ********"


def test_a_secret_that_is_used_must_be_declared() -> None:
    check_used({"a": "${secret:db}"}, {"db": "env:DB"}, "topology words")
    with pytest.raises(ConfigError, match=r"component count: a uses a secret 'pasword'.*'password'"):
        check_used({"a": ["${secret:pasword}"]}, {"password": "env:DB"}, "component count")


def test_values_reach_user_code_and_nothing_that_is_shown(tmp_path: Path, file: Path) -> None:
    launch = launch_of(tmp_path, db=f"file:{file}", tls="kubernetes:s/k")
    store_secrets(launch, read_secrets(launch.secrets))
    assert VALUE.encode() not in launch.encode()
    assert Launch.load(launch.dir).secrets == launch.secrets
    assert (launch.dir / "user-secrets").stat().st_mode & 0o777 == 0o700
    assert (launch.dir / "user-secrets/db").stat().st_mode & 0o777 == 0o600
    document = Bootstrap.decode(bootstrap_document(launch, 1))
    assert document.files["user-secrets/db"] == VALUE
    assert VALUE not in repr(document)
    there = make_directory(document, tmp_path / "host")
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount/tls").write_text("of the cluster\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(MOUNT_ENV, str(tmp_path / "mount"))
        assert dict(load_secrets(there)) == {"db": VALUE, "tls": "of the cluster"}
    with pytest.raises(HeronError, match="secret 'tls' of words is not on this host"):
        load_secrets(there)
    of_master = make_directory(Bootstrap.decode(bootstrap_document(launch, 0)), tmp_path / "master")
    assert not (of_master.dir / "user-secrets").exists(), "container 0 runs no user code"


def test_a_variable_that_is_a_secret_is_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "of the environment")
    environment = child_environment(launch_of(tmp_path, key="env:API_KEY"), "executor")
    assert "API_KEY" not in environment
    assert "of the environment" not in environment.values()


def test_a_service_inherits_only_the_variables_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "of the environment")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv(PASSED_ENV, "PATH TZ")
    launch = launch_of(tmp_path)
    environment = child_environment(launch, SERVICE)
    assert {"PATH", "TZ", "API_KEY", PASSED_ENV} & environment.keys() == {"PATH", "TZ"}
    assert environment["HERON_TOPOLOGY_ID"] == "words-1"
    assert "API_KEY" in child_environment(launch, "executor"), "it is the service that hides it from executors"


def test_what_has_changed_is_renewed_and_what_is_not_here_stays(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "one")
    launch = launch_of(tmp_path, db=f"file:{file}", key="env:API_KEY")
    store_secrets(launch, read_secrets(launch.secrets))
    assert renew_secrets(launch) == []
    file.write_text("new\n")
    monkeypatch.delenv("API_KEY")
    said = renew_secrets(launch)
    assert said[0] == "secret 'db' is renewed"
    assert (len(said), "API_KEY" in said[1], "stays as it is" in said[1]) == (2, True, True)
    assert dict(load_secrets(launch)) == {"db": "new", "key": "one"}

    def refuse(_: Launch) -> None:
        raise ConfigError("not here")

    monkeypatch.setattr(heron_scheduler, "renew_secrets", refuse)
    file.write_text("newer\n")
    with pytest.raises(ConfigError, match="not here"):
        renew_secrets(launch)
    assert load_secrets(launch)["db"] == "new", "so that the next attempt sees the difference"


def test_no_file_of_a_machine_is_read_for_what_was_submitted_elsewhere(tmp_path: Path, file: Path) -> None:
    submitted = launch_of(tmp_path / "there", db=f"file:{file}", tls="kubernetes:s/k")
    store_secrets(submitted, {"db": "of the submitter"})
    adopted = launch_of(tmp_path / "here", db=f"file:{file}", tls="kubernetes:s/k")
    (name,) = [name for name in Bootstrap.decode(bootstrap_document(submitted, 0)).files if "user-secrets" in name]
    private_directory(adopted.dir / "user-secrets")
    write_secret(adopted.dir / name, b"of the submitter")  # as a command on another machine is handed it
    assert renew_secrets(adopted) == ["secret 'db' was brought from elsewhere; it stays as it is"]
    assert (adopted.dir / "user-secrets/db").read_text() == "of the submitter"
    pretended = dataclasses.replace(submitted, secrets={"db": f"file:{file.parent}/another"})
    assert renew_secrets(pretended) == ["secret 'db' was brought from elsewhere; it stays as it is"]


@pytest.mark.parametrize("ensure_ascii", [False, True])
def test_secrets_are_hidden_in_logs_as_json_too(ensure_ascii: bool) -> None:
    class Json(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return json.dumps({"message": record.getMessage()}, ensure_ascii=ensure_ascii)

    value = 'say "wörd"\\7\nand more'
    formatter = MaskedLogs(Json(), Secrets({"db": value}))
    for said in (value, repr(value), f"in {value!r}, in {value}"):
        line = formatter.format(logging.LogRecord("x", logging.INFO, "", 0, "%s", (said,), None))
        assert "********" in json.loads(line)["message"]
        assert not [part for part in ("wörd", "w\\u00f6rd", "and more") if part in line]


class Words(Spout):
    outputs = ("word",)
    given: tuple[Any, ...] = ()

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        Words.given = config["my.url"], context.get_secret("db"), context.get_cluster_config()["my.url"]


class Count(Bolt):
    pass


def builder(**config: Any) -> TopologyBuilder:
    made = TopologyBuilder("words")
    words = made.add_spout("words", Words, 1)
    made.add_bolt("count", Count, 1, {words: Grouping.SHUFFLE})
    made.set_config({"my.url": "x://${secret:db}", **config})
    return made


def test_user_code_reads_plain_text(tmp_path: Path) -> None:
    declared = {"db": "env:DB"}
    definition = Definition.of(builder(**{"topology.secrets": declared}).build())
    with Simulator(definition, secrets={"db": VALUE}):
        assert Words.given == (f"x://{VALUE}", VALUE, f"x://{VALUE}")
    prepared = prepare(
        definition, home=tmp_path, properties={"topology.secrets": {"db": "file:/given/at/submit", "more": "env:M"}}
    )
    assert prepared.launch.secrets == {"db": "file:/given/at/submit", "more": "env:M"}
    assert json.loads(prepared.launch.encode())["secrets"] == prepared.launch.secrets
    with pytest.raises(ConfigError, match="scheduler local has no secrets of kubernetes"):
        prepare(definition, home=tmp_path, properties={"topology.secrets": {"db": "kubernetes:s/k"}})
    with pytest.raises(ConfigError, match=r"my\.url uses a secret 'db', which topology.secrets does not declare"):
        prepare(Definition.of(builder().build()), home=tmp_path)
