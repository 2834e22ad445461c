"""Requirements that are installed from a package alone, and an environment that is made again elsewhere."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heronpy.config import EngineConfig
from heronpy.environment import (
    PYTHON,
    REQUIREMENTS_PATH,
    collect_requirements,
    has_requirements,
    install,
    install_requirements,
    own_tag,
    pack_environment,
    python_command,
)
from heronpy.errors import NotFoundError, StateError, UnavailableError, UsageError
from heronpy.host import find_by_environment
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.testing import eventually_sync
from heronpy.testing.servers import S3Server, s3_missing
from heronpy.uploader import open_uploader, pack


def wheel(folder: Path, name: str, version: str = "1.0", tag: str = "py3-none-any") -> Path:
    """A wheel with one module, which says its version."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of a package index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "topology" / "package").mkdir(parents=True)
    return tmp_path / "topology" / "package"


def requirements(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    return path


def launch_with(directory: Path, **keys: Any) -> Launch:
    return Launch(
        topology="words",
        topology_id="words-1",
        cluster="local",
        role="ada",
        environ="default",
        statemgr=StatemgrSpec(),
        dir=directory,
        config=EngineConfig.from_keys(keys),
    )


def test_requirements_travel_as_wheels(index: Path, package: Path, tmp_path: Path) -> None:
    wheel(index, "heron_test_dep", "1.0")
    wheel(index, "heron_test_dep", "2.0")
    assert not has_requirements(package)
    collect_requirements(requirements(tmp_path, "heron-test-dep<2\n"), package)
    assert has_requirements(package)
    os.environ["PIP_FIND_LINKS"] = "/nowhere"  # the host asks nobody
    into = package.parent / REQUIREMENTS_PATH
    install_requirements(package, into)
    program = f"import sys; sys.path.insert(0, {str(into)!r}); import heron_test_dep as d; print(d.VERSION)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "1.0\n"
    install_requirements(package, into)
    assert [path.name for path in into.parent.iterdir()] == ["site-packages"]


def test_a_package_without_requirements_installs_none(package: Path) -> None:
    install_requirements(package, package.parent / REQUIREMENTS_PATH)
    assert not (package.parent / REQUIREMENTS_PATH).exists()


def test_what_pip_refuses_is_one_line(index: Path, package: Path, tmp_path: Path) -> None:
    index.mkdir()
    with pytest.raises(UsageError, match="heron-nowhere==9") as error:
        collect_requirements(requirements(tmp_path, "heron-nowhere==9\n"), package)
    assert "\n" not in str(error.value)
    with pytest.raises(NotFoundError, match=r"no-such\.txt"):
        collect_requirements(tmp_path / "no-such.txt", package)


def test_a_pip_that_takes_too_long_is_ended_with_what_it_has_started(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = (
        "import os, subprocess\nsubprocess.Popen(['sleep', '1000'])\nopen(os.environ['BEGUN'], 'w').close()\nos.wait()"
    )
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(pip)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("BEGUN", str(tmp_path / "begun"))
    with pytest.raises(UnavailableError, match="within"):
        collect_requirements(requirements(tmp_path, "heron-test-dep\n"), package, timeout_s=10)
    assert (tmp_path / "begun").exists()

    def check_ended() -> None:
        assert list(find_by_environment({"BEGUN": str(tmp_path / "begun")})) == []

    eventually_sync(check_ended)


def test_another_version_of_what_the_engine_needs_is_refused(index: Path, package: Path, tmp_path: Path) -> None:
    wheel(index, "numpy", "0.1")
    with pytest.raises(UsageError, match="numpy"):
        collect_requirements(requirements(tmp_path, "numpy==0.1\n"), package)


def test_a_wheel_of_another_platform_is_named(index: Path, package: Path) -> None:
    (package / ".heron-wheels").mkdir()
    wheel(package / ".heron-wheels", "heron_test_dep", "1.0", "cp27-cp27m-win32")
    into = package.parent / REQUIREMENTS_PATH
    with pytest.raises(UsageError, match="heron_test_dep"):
        install_requirements(package, into)
    assert not into.exists()
    assert list(into.parent.iterdir()) == []


def test_packages_become_a_topology_directory(tmp_path: Path, package: Path, index: Path) -> None:
    wheel(index, "heron_test_dep")
    (package / "main.py").write_text("")
    collect_requirements(requirements(tmp_path, "heron-test-dep\n"), package)
    with open_uploader(str(tmp_path / "store")) as uploader:
        ref = uploader.store(pack(package, tmp_path / "package.tar.gz"), topology_id="words-1")
    (tmp_path / "host").mkdir()
    launch = replace(launch_with(tmp_path / "host"), packages={"package": ref.to_json()})
    launch.save()
    for _ in range(2):  # the second start finds everything
        install(Launch.load(launch.dir))
        assert (launch.dir / "package" / "main.py").exists()
        assert (launch.dir / REQUIREMENTS_PATH / "heron_test_dep.py").exists()
    with pytest.raises(StateError, match="does not know"):
        install(replace(launch, packages={"../outside": ref.to_json()}))
    with pytest.raises(StateError, match="damaged"):
        install(replace(launch, dir=tmp_path, packages={"package": {**ref.to_json(), "sha256": "x"}}))


class TestShipped:
    @pytest.fixture
    def command(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The Python of a container that was shipped an environment with one module, and the engine."""
        return self.shipped(f"file://{tmp_path}/st%20ore", tmp_path, monkeypatch)

    def shipped(self, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        installed = tmp_path / "site-packages"
        (installed / "pip").mkdir(parents=True)
        (installed / "pip" / "__init__.py").write_text("")
        (installed / "setuptools" / "of_the_submitter").mkdir(parents=True)
        (installed / "editable.pth").write_text("/nowhere\n")
        (installed / "shipped_module.py").write_text("WORD = 'shipped'\n")
        monkeypatch.setattr(sysconfig, "get_paths", lambda: {"purelib": str(installed), "platlib": str(installed)})
        archive = pack_environment(tmp_path / "python.tar.gz")
        with open_uploader(store) as uploader:
            ref = uploader.store(archive, topology_id="words-1")
        keys = {"heron.package.python": "ship", "heron.uploader.url": str(tmp_path / "store")}
        launch = launch_with(tmp_path, **keys)
        return python_command(replace(launch, packages={PYTHON: {**ref.to_json(), "tag": own_tag()}}))

    @pytest.fixture
    def shared(self) -> Iterator[Path]:
        """A directory where any user can make files."""
        if os.geteuid() != 0 or shutil.which(f"python3.{sys.version_info[1]}", path="/usr/bin") is None:
            pytest.skip("only root can be another user, who needs a Python of the system")
        with tempfile.TemporaryDirectory() as directory:
            os.chmod(directory, 0o777)
            yield Path(directory)

    def run(self, command: list[str], tmp_path: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        host = f"{sys.base_prefix}/bin/{command[0]}"
        environment = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], **more}
        return subprocess.run(
            [host, "-I", *command[1:], *arguments], env=environment, cwd="/", capture_output=True, text=True
        )

    def test_it_is_made_once_and_has_what_was_installed(self, command: list[str], tmp_path: Path) -> None:
        program = "import sys, shipped_module, heronpy.errors; print(shipped_module.WORD, heronpy.__file__, sys.argv)"
        first = self.run(command, tmp_path, "-c", program, "x")
        cache = tmp_path / "home" / ".cache" / "heron" / "python"
        (made,) = cache.iterdir()
        assert first.stderr == ""
        assert first.stdout.split()[0] == "shipped"
        assert first.stdout.split()[1].startswith(str(made))
        assert "'x'" in first.stdout
        before = made.stat().st_ino
        assert self.run(command, tmp_path, "-c", program).returncode == 0
        assert made.stat().st_ino == before
        assert [path.name for path in cache.iterdir()] == [made.name]
        assert self.run(command, tmp_path, "-c", "import pip").stderr == ""  # what installs the requirements
        missing = self.run(command, tmp_path, "-c", "import setuptools.of_the_submitter")
        assert "No module named 'setuptools" in missing.stderr

    def test_what_was_unused_for_a_month_is_removed_and_what_runs_is_not(
        self, command: list[str], tmp_path: Path
    ) -> None:
        cache = tmp_path / "home" / ".cache" / "heron" / "python"
        cache.mkdir(parents=True, mode=0o700)
        for name in ("unused", "used", "recent", ".new-of-a-killed-one"):
            (cache / name).mkdir()
            if name != "recent":
                os.utime(cache / name, (0, 0))
        held = os.open(cache / "used" / "lock", os.O_RDWR | os.O_CREAT)
        os.utime(cache / "used", (0, 0))
        fcntl.flock(held, fcntl.LOCK_SH)
        # Whether the environment is locked, asked by what runs in it, as after the exec by which a container starts.
        program = (
            "import fcntl, os, sys\n"
            "if len(sys.argv) < 2: os.execv(sys.executable, [*sys.orig_argv, 'again'])\n"
            "lock = os.open(sys.prefix + '/lock', os.O_RDWR)\n"
            "try: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
            "except BlockingIOError: print('locked')"
        )
        done = self.run(command, tmp_path, "-c", program)
        assert (done.stdout, done.stderr) == ("locked\n", "")
        os.close(held)
        made = Path(command[4]).name
        assert {path.name for path in cache.iterdir()} == {"used", "recent", made}

    def test_where_home_is_not_the_users_it_is_made_elsewhere(self, command: list[str], shared: Path) -> None:
        archive = Path(shutil.copy(command[3], shared / "archive"))

        def run() -> subprocess.CompletedProcess[str]:
            arguments = (*command[1:3], archive, *command[4:], "-c", "import sys; print(sys.prefix)")
            return subprocess.run(
                [f"/usr/bin/{command[0]}", "-I", *arguments],
                env={"HOME": "/home", "TMPDIR": str(shared)},
                cwd="/",
                user=54321,  # which has no entry in the passwd file
                extra_groups=[],
                capture_output=True,
                text=True,
            )

        archive.chmod(0o600)
        refused = run()
        assert f"{archive} cannot be read by uid 54321" in refused.stderr
        archive.chmod(0o644)
        done = run()
        assert done.stdout == f"{shared}/heron-python-54321/{command[4]}\n", done.stderr

    def test_a_host_that_does_not_fit_says_so(self, command: list[str], tmp_path: Path) -> None:
        other = [*command[:-1], "cpython-39 linux-riscv64"]
        failed = self.run(other, tmp_path, "-c", "pass")
        assert (failed.returncode, failed.stdout) == (1, "")
        assert failed.stderr.startswith(f"heron: this host's Python is {own_tag()}, and")
        assert failed.stderr.count("\n") == 1

    def test_a_damaged_or_missing_environment_is_one_line(self, command: list[str], tmp_path: Path) -> None:
        stored = Path(command[3])
        content = bytearray(stored.read_bytes())
        content[1000] ^= 1
        stored.write_bytes(content)
        damaged = self.run(command, tmp_path, "-c", "pass")
        assert (damaged.returncode, damaged.stderr.count("\n")) == (1, 1)
        assert "is damaged" in damaged.stderr
        stored.unlink()
        missing = self.run(command, tmp_path, "-c", "pass")
        assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
        assert "submit it again" in missing.stderr
        assert list((tmp_path / "home" / ".cache" / "heron" / "python").iterdir()) == []

    @pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or "")
    def test_it_comes_from_s3_to_a_host_without_boto3(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in S3Server.credentials.items():
            monkeypatch.setenv(name, value)

        def fails(code: int, why: str, **credentials: str) -> None:
            done = self.run(command, tmp_path, "-c", "pass", **credentials)
            assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
            assert why in done.stderr

        keys = dict(S3Server.credentials)
        with S3Server(tmp_path / "s3") as server:
            url = server.url("packages").replace("packages?", "packages/of%20all+teams/now?")
            command = self.shipped(url, tmp_path, monkeypatch)
            assert command[3].startswith("s3://packages/of%20all+teams/now/")
            fails(1, "which this container's environment lacks")
            fails(1, "S3 answers SignatureDoesNotMatch", **{**keys, "AWS_SECRET_ACCESS_KEY": "wrong"})
            fails(1, "S3 answers XAdminUserNotFound", **{**keys, "AWS_ACCESS_KEY_ID": "stranger"})
            done = self.run(command, tmp_path, "-c", "import shipped_module as m; print(m.WORD)", **keys)
            assert (done.stdout, done.stderr) == ("shipped\n", "")
            (made,) = (tmp_path / "home/.cache/heron/python").iterdir()
            shutil.rmtree(made)
            (stored,) = (tmp_path / "s3/buckets/packages").rglob("*.0.tar.gz")
            content = stored.read_bytes()
            stored.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            fails(1, "is damaged: kill the topology", **keys)
            stored.unlink()
            fails(1, "is not there: kill the topology", **keys)
        fails(75, "cannot be fetched: [Errno 111] Connection refused", **keys)
        assert list(made.parent.iterdir()) == []

    def test_a_cache_of_somebody_else_is_not_used(self, command: list[str], tmp_path: Path) -> None:
        cache = tmp_path / "home" / ".cache" / "heron" / "python"
        cache.mkdir(parents=True)
        cache.chmod(0o777)
        failed = self.run(command, tmp_path, "-c", "pass")
        assert (failed.returncode, "others can write" in failed.stderr) == (1, True)
