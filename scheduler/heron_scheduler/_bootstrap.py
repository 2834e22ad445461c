"""What a cluster is handed with a container, read back where a command adopts the topology."""

from __future__ import annotations

from pathlib import Path

from heronpy.container import Bootstrap
from heronpy.runtime import Launch
from heronpy.security import private_directory, write_secret


def write_secrets(launch: Launch, document: bytes, directory: Path) -> None:
    """Put the secrets of container 0's bootstrap file into a directory, and issue the certificates of commands.

    Raises:
        ConfigError: it is none, or of another version of heronpy.
        StateError: the directory cannot be written.
    """
    write_files(Bootstrap.decode(document), directory)
    if launch.config.security.tls:
        from heronpy.security import authority  # here, because few commands make certificates

        authority.create(directory / "tls", launch.topology_id, [], days=launch.config.security.certificate_days)


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
