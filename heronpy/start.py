"""`python -m heronpy.start MODULE …`: run a process of the engine, as `python -m MODULE …` would, with less CPU.

While it imports modules, Python looks for garbage again and again in what is there to stay, which takes a tenth of the
CPU of a start. Here it does not until MODULE says that the engine's modules are imported, which must be before it
imports user code or waits for anything; `heronpy.runtime.main` says so at the latest.
"""

import gc
import runpy
import sys

_paused = False


def run() -> None:
    """Run the module that is the first argument as `__main__`, with the arguments after it."""
    global _paused
    gc.disable()
    _paused = True
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)


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


if __name__ == "__main__":
    from heronpy.start import run as _run  # the module that others import, whose state this is

    _run()
