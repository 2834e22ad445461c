"""What a cluster is handed with a container, read back where a command adopts the topology."""

from __future__ import annotations

from pathlib import Path

from heronpy.container import BOOTSTRAP_BYTES_MAX as BYTES_MAX
from heronpy.container import Bootstrap
from heronpy.errors import UntrustedError
from heronpy.runtime import Launch
from heronpy.security import private_directory, write_secret


def write_secrets(launch: Launch, document: bytes, directory: Path) -> None:
    """Put the secrets of container 0's bootstrap file into a directory, and issue the certificates of commands.

    Raises:
        ConfigError: it is none, or of another version of heronpy.
        UntrustedError: it is of another topology, or of one with TLS, which `launch` says it has not.
        StateError: the directory cannot be written.
    """
    write_files(checked(launch, document), directory)
    if launch.config.security.tls:
        from heronpy.security import authority  # here, because few commands make certificates

        authority.create(directory / "tls", launch.topology_id, [], days=launch.config.security.certificate_days)


def checked(launch: Launch, document: bytes) -> Bootstrap:
    """Container 0's bootstrap file, if it belongs to the topology as the state manager describes it.

    Who can write to the state manager could otherwise have the token of one topology sent in the place of another's, or
    sent in clear.

    Raises:
        ConfigError: it is damaged, or of another version of heronpy.
        UntrustedError: it is of another topology, or of one with TLS, which `launch` says it has not.
    """
    if len(document) > BYTES_MAX:
        raise UntrustedError(f"what the cluster hands over for {launch.topology} is larger than {BYTES_MAX} bytes")
    bootstrap = Bootstrap.decode(document)
    theirs = bootstrap.place(launch.dir)
    expected = (launch.topology, launch.topology_id, launch.cluster, launch.role, launch.environ)
    if bootstrap.container or (theirs.topology, theirs.topology_id, *_place(theirs)) != expected:
        raise UntrustedError(
            f"what the cluster hands over for {launch.topology} belongs to container {bootstrap.container} of "
            f"{'/'.join(_place(theirs))} {theirs.topology}: the state manager does not say what was submitted"
        )
    if theirs.config.security.tls and not launch.config.security.tls:
        raise UntrustedError(
            f"the state manager says that {launch.topology} has no certificates, and it was submitted with them"
        )
    return bootstrap


def _place(launch: Launch) -> tuple[str, str, str]:
    return launch.cluster, launch.role, launch.environ


def write_files(bootstrap: Bootstrap, directory: Path, prefix: str = "") -> None:
    """Put the files of a bootstrap file whose paths begin so into a directory, for this user alone.

    Raises:
        StateError: it cannot be written.
    """
    for name, text in bootstrap.files.items():
        if name.startswith(prefix):
            path = directory / name
            for parent in reversed(path.relative_to(directory).parents[:-1]):
                private_directory(directory / parent)
            write_secret(path, text.encode())
