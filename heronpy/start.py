"""`python -m heronpy.start MODULE …`: run a process of the engine, as `python -m MODULE …` would, with less CPU.

While it imports modules, Python looks for garbage again and again in what is there to stay, which takes a tenth of the
CPU of a start. Here it does not until `heronpy.runtime.main` is called, as MODULE must.
"""

import gc
import runpy
import sys

if __name__ == "__main__":
    gc.disable()
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
