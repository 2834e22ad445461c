"""`python -m heronpy.start MODULE …`: run a process of the engine, as `python -m MODULE …` would, with less CPU.

While it imports modules, Python looks for garbage again and again in what is there to stay, which takes a tenth of the
CPU of a start. Here it does not until MODULE says that the engine's modules are imported, which must be before it
imports user code or waits for anything; `heronpy.runtime.main` says so at the latest.

From then on, nothing of another release is imported that may have been installed in the place of this one meanwhile: a
process is of one release, as a whole. One that is executed then finds by itself that its topology is of another.
"""

from __future__ import annotations

import gc
import os
import runpy
import sys

import heronpy

_PACKAGES = ("heronpy", "heron_scheduler")
_paused = False


def _stamp() -> tuple[int, ...]:
    """Another one when another release, or the same once more, is installed in the place of this one."""
    try:
        found = os.stat(heronpy.__file__)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


_began = _stamp()


def run() -> None:
    """Run the module that is the first argument as `__main__`, with the arguments after it.

    What it refuses to begin with is one line on stderr.
    """
    global _paused
    gc.disable()
    _paused = True
    try:
        runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
    except Exception as e:
        from heronpy.errors import HeronError  # here: few processes fail

        if not isinstance(e, HeronError):
            raise
        print(f"heron: {e}", file=sys.stderr, flush=True)
        sys.exit(e.exit_code or 1)


def imports_done() -> None:
    """Never look for garbage in what is there by now, and look for it in what comes from now on.

    User code may turn the collector off afterwards: called again, this does not turn it on.
    """
    global _paused
    # What was imported stays until the end. To look through it for garbage is useless, and when Python ends, which does
    # so several times, it takes a fifth of the CPU of a short-lived process.
    gc.freeze()
    if _paused:
        gc.enable()
        _paused = False
        sys.meta_path.insert(0, _OneRelease)


class _OneRelease:
    """Finds no module, and refuses those of the engine if another release is installed by now."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in _PACKAGES and _stamp() != _began:
            try:
                with open(heronpy.__file__) as f:
                    found = f.read().rpartition('__version__ = "')[2].partition('"')[0]
            except OSError:
                found = "none"
            if found != heronpy.__version__:
                raise ImportError(f"{name}: heronpy {heronpy.__version__} runs here, and {found} is installed now")


if __name__ == "__main__":
    from heronpy.start import run as _run  # the module that others import, whose state this is

    _run()
