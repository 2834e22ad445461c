"""The configuration of one API server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from heronpy.apiserver._audit import BYTES_MAX as AUDIT_BYTES_MAX
from heronpy.apiserver._audit import FILES_MAX as AUDIT_FILES_MAX
from heronpy.config import MIB
from heronpy.sandbox import Limits

PORT = 9000
AUDIT_FILE = "apiserver.audit.jsonl"
"""Below HERON_HOME, unless another is named."""
PASSED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("PYTHONPATH", "LD_LIBRARY_PATH", "JAVA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "HERON_HOME"),
)
"""What topologies that are processes of the server's machine inherit of its environment: nothing that is a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerConfig:
    """The configuration of one API server."""

    home: Path
    """HERON_HOME: where the topologies' directories are."""
    users_file: Path
    """Who may do what: see `_users`."""
    audit_file: Path
    """Where it is written down who has changed what: see `_audit`."""
    audit_bytes_max: int = AUDIT_BYTES_MAX
    """How large that file may become until it is renamed and a new one begun."""
    audit_files_max: int = AUDIT_FILES_MAX
    """How many of the renamed ones are kept; 0: all."""
    config_path: Path | None = None
    """The directory of the clusters' directories, instead of the installed one."""
    host: str = "127.0.0.1"
    """Where it listens."""
    hosts: tuple[str, ...] = ()
    """Names that it may be addressed by, besides its own address, other IP addresses and localhost."""
    trusts_users: bool = False
    """Whether code of users who are not admins may run as the server's unix user, who can do all that it can."""
    limits: Limits = field(default_factory=Limits)
    """What user code may take while it defines a topology."""
    upload_bytes_max: int = 256 * MIB
    """The largest program."""
    upload_timeout_s: float = 600.0
    """How long the upload of a program may take."""
    action_within_s: float = 300.0
    """A caller waits no longer for an action; it goes on."""
    actions_max: int = 32
    """How many actions of a lane may run or wait, a quarter of them of one user; more are refused: see `_lanes`."""
