"""What follows when a container of YARN has ended. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from heron_scheduler._spi import ContainerPhase
from heron_scheduler.driven import Run
from heron_scheduler.yarn._rest import reason_in
from heronpy.container import TRY_AGAIN, is_unusable

FAILURES_MAX = 5
"""After so many in a row a container is given up."""
HEALTHY_S = 60.0
"""One that ran for so long starts at once when it has ended."""
PAUSE_S_MAX = 15.0
_SIGNALS = 128
_YARNS = {
    -100: "its node was lost, or YARN has taken it back",
    -101: "the disks of its node have failed",
    -102: "YARN has preempted it",
    -103: "it has used more virtual memory than it asked for",
    -104: "it has used more memory than it asked for",
    -105: "it has been released",
    -106: "YARN has killed it",
    -107: "its application has ended",
}


@dataclass(slots=True)
class Attempts:
    """How often a container has failed in a row, and what it waits before its next start."""

    failures: int = 0
    pause_s: float = 0.0
    began_s: float = 0.0

    def ended(self, run: Run, exit_status: int, diagnostics: str, now_s: float) -> None:
        """Note in `run` how it has ended, and when it is run again."""
        host, run.over, run.host = run.host, True, ""
        if exit_status == 0:
            self.failures, self.pause_s = 0, 0.0
            run.phase = ContainerPhase.ENDING  # on purpose: nothing is run again
            return
        if now_s - self.began_s >= HEALTHY_S:
            self.failures, self.pause_s = 0, 0.0
        reason = _YARNS.get(exit_status) or reason_in(diagnostics) or f"exit code {exit_status}"
        run.reason = f"{host}: {reason}" if host else reason
        if 0 < exit_status <= _SIGNALS and exit_status != TRY_AGAIN:
            self.failures += 1
        if self.failures >= FAILURES_MAX or is_unusable(exit_status, diagnostics):
            run.phase, self.failures, self.pause_s = ContainerPhase.FAILED, 0, 0.0
            return
        run.phase, run.retry_s = ContainerPhase.PENDING, now_s + self.pause_s
        self.pause_s = min(2 * self.pause_s + 1, PAUSE_S_MAX)
