"""Children are waited for whatever signal handlers raise, and whenever they do."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from heronpy.child import Child, run

INTERRUPTED = """
import os, signal, subprocess, sys, time

class Lock:
    # A SIGTERM comes right after it was taken, before the try that would release it. In a with none can.
    def __init__(self, lock):
        self.lock = lock
    def acquire(self, blocking=True):
        got = self.lock.acquire(blocking)
        if got:
            os.kill(os.getpid(), signal.SIGTERM)
        return got
    def release(self):
        self.lock.release()
    def __enter__(self):
        return self.lock.__enter__()
    def __exit__(self, *error):
        return self.lock.__exit__(*error)

start = subprocess.Popen.__init__

def locked(self, *args, **options):
    start(self, *args, **options)
    self._waitpid_lock = Lock(self._waitpid_lock)

subprocess.Popen.__init__ = locked
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
"""
INTERRUPTS = "cat; kill -TERM $PPID; exec sleep 1000"
"""Once its standard input is at its end: then it is waited for."""


def interrupted(code: str, *args: str) -> int:
    """The exit code of a program that a SIGTERM interrupts at the worst time; it must end."""
    return subprocess.run([sys.executable, "-c", INTERRUPTED + code, *args], timeout=60).returncode


@pytest.mark.parametrize(
    "waiting", ["while child.poll() is None: time.sleep(0.01)", "child.wait(60)", "child.communicate(timeout=60)"]
)
def test_a_handler_that_raises_while_a_child_is_waited_for_leaves_no_lock_held(waiting: str) -> None:
    code = f"""
from heronpy.child import Child
child = Child(["sh", "-c", sys.argv[1]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
try:
    {waiting}
finally:
    child.kill()
    assert child.wait() == -signal.SIGKILL
"""
    assert interrupted(code, INTERRUPTS) == 7


def test_a_command_that_is_interrupted_leaves_no_process(tmp_path: Path) -> None:
    code = """
from heronpy.child import run
run(["sh", "-c", "echo $$ > " + sys.argv[2] + ";" + sys.argv[1]], timeout_s=60)
"""
    pid_file = tmp_path / "pid"
    assert interrupted(code, INTERRUPTS, str(pid_file)) == 7
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()


def test_a_program_whose_definition_is_interrupted_is_ended(tmp_path: Path) -> None:
    program, pid_file = tmp_path / "program.py", tmp_path / "pid"
    program.write_text(
        "import os, pathlib, signal, time\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(1000)\n"
    )
    assert interrupted("from heronpy.loader import define; define(sys.argv[1], '-')", str(program)) == 7
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


def test_a_child_says_how_it_ended_to_all_threads_that_wait() -> None:
    child = Child(["sh", "-c", "read line; exit 3"], stdin=subprocess.PIPE)
    assert child.poll() is None
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(child.wait(60))) for _ in range(4)]
    for thread in threads:
        thread.start()
    child.communicate(b"\n", timeout=60)
    for thread in threads:
        thread.join()
    assert (codes, child.poll(), child.wait(0)) == ([3] * 4, 3, 3)


def test_a_child_that_does_not_end_in_time_can_be_waited_for_again() -> None:
    with Child(["sleep", "1000"]) as child:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.01)
        child.kill()
    assert child.returncode == -9


def test_what_a_command_prints_is_returned() -> None:
    done = run(["sh", "-c", "cat; echo wrong >&2; exit 4"], timeout_s=60, stdin="read")
    assert (done.stdout, done.stderr, done.returncode) == ("read", "wrong\n", 4)


def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sh", "-c", f"echo $$ > {pid_file}; exec sleep 1000"], timeout_s=0.5)
    assert not pid_file.exists() or not Path(f"/proc/{pid_file.read_text().strip()}").exists()
