"""The process that runs the user's code to define a topology. See `_define`, which starts it."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from heronpy.api import Bolt, Spout, Topology
from heronpy.api.topology import INSTANCE_ENV
from heronpy.errors import HeronError, NotFoundError, NoTopologyError, TopologyError, UserCodeError, nearest
from heronpy.files import replace_file
from heronpy.loader._load import add_script, import_user_module, load_class
from heronpy.loader._traceback import user_traceback
from heronpy.loader.definition import class_paths
from heronpy.loader.main_code import module_main, script_main
from heronpy.loader.sources import roots, top_level_names
from heronpy.parent import PARENT_ENV, die_with_parent
from heronpy.plan import LogicalPlan
from heronpy.proto import topology_pb2
from heronpy.shown import said

_STORM_NAMES: tuple[tuple[type, str, str], ...] = ((Spout, "next_tuple", "nextTuple"), (Bolt, "process", "execute"))
"""Methods that the engine calls, and what Storm calls them. One that is only absent may be set by `initialize()`."""


def main() -> None:
    """Do what the request in the file `sys.argv[2]` says, and write the result to the file that it names."""
    die_with_parent()
    # It is about this process: one that the user's code starts has another parent.
    os.environ.pop(PARENT_ENV, None)
    request = json.loads(Path(sys.argv[2]).read_text())
    stacks = open(request["stacks"], "w")  # noqa: SIM115 until the process ends
    faulthandler.dump_traceback_later(request["stacks_after_s"], file=stacks)
    sys.path[:0] = request["paths"]
    sys.argv = request["argv"]
    answer: dict[str, Any]
    try:
        _define(request)
        _check_defined(request)
        _load_named(Path(request["definitions"]))
        where = roots()
        answer = {"roots": [str(root) for root in where], "names": top_level_names(where)}
    except HeronError as e:
        answer = {"error": _serialized(e)}
    replace_file(request["result"], json.dumps(answer), durable=False)
    _end()


def _define(request: dict[str, Any]) -> None:
    if request["cls"] != "-":
        _write(_topology(request))
    elif request["function"]:
        module = import_user_module(request["module"])
        function = getattr(module, request["function"], None)
        if not callable(function):
            raise NotFoundError(f"{request['module']} has no function {request['function']!r}")
        _call(request["shown"], function)
    else:
        _run_as_main(request)


def _topology(request: dict[str, Any]) -> type[Topology]:
    cls = request["cls"]
    if not request["module"]:
        found = load_class(cls)
    else:
        if request["file"]:
            add_script(request["module"], Path(request["file"]))
        module = import_user_module(request["module"])
        found = _attribute(module, cls, request["shown"])
    if not (isinstance(found, type) and issubclass(found, Topology) and found is not Topology):
        raise TopologyError(f"{cls} in {request['shown']} is not a subclass of heronpy.api.topology.Topology")
    return found


def _attribute(module: ModuleType, cls: str, shown: str) -> Any:
    found: Any = module
    for part in cls.split("."):
        if not hasattr(found, part):
            classes = [name for name, value in vars(found).items() if isinstance(value, type)]
            near = nearest(cls, _topologies(found)) or nearest(cls, classes)
            raise NotFoundError(f"no class {cls!r} in {shown}{near}")
        found = getattr(found, part)
    return found


def _topologies(within: Any) -> list[str]:
    """Names of the topology classes in a module or a class."""
    found = {name: value for name, value in vars(within).items() if isinstance(value, type)}
    return [
        name for name, value in found.items() if issubclass(value, Topology) and hasattr(value, "protobuf_topology")
    ]


def _write(topology: type[Topology]) -> None:
    # What the module wrote while it was imported is not what was asked for.
    directory = Path(str(topology.topologydefn_tmpdir))
    for path in directory.glob("*.defn"):
        path.unlink()
    topology.write()


def _check_defined(request: dict[str, Any]) -> None:
    if any(Path(request["definitions"]).glob("*.defn")):
        return
    how = "a script must call build_and_submit() of a TopologyBuilder, or write() of a Topology"
    if classes := _topologies(sys.modules["__main__"]):
        how = f"name its class {' or '.join(classes)} instead of -"
    raise NoTopologyError(f"{request['shown']} defined no topology: {how}")


def _load_named(definitions: Path) -> None:
    """Import what the topology names only by its class path, because what is imported goes with the topology.

    Raises:
        NotFoundError: no such module or class.
        TopologyError: a spout or bolt has the method that the engine calls under Storm's name.
        UserCodeError: a module cannot be imported.
    """
    os.environ[INSTANCE_ENV] = "loader"  # a script that is imported by its name must not define it again
    for path in definitions.glob("*.defn"):
        plan = LogicalPlan.from_proto(topology_pb2.Topology.FromString(path.read_bytes()))
        for where, named in class_paths(plan):
            try:
                cls = load_class(named)
            except NotFoundError as e:
                raise NotFoundError(f"{where}: {e}") from e
            for base, method, other in _STORM_NAMES:
                if issubclass(cls, base) and getattr(cls, method) is getattr(base, method) and hasattr(cls, other):
                    raise TopologyError(f"{where}: {cls.__name__} has {other}(), which is {method}() here")


def _run_as_main(request: dict[str, Any]) -> None:
    """Run a module as `python file` or `python -m module` would, in a `__main__` that pickle can find again."""
    shown = request["shown"]
    if request["file"]:
        module, code = script_main(Path(request["file"]), shown)
    else:
        module, code = module_main(request["module"], request["paths"][0])
    sys.modules["__main__"] = module
    _call(shown, lambda: exec(code, module.__dict__))


def _call(shown: str, function: Any) -> None:
    try:
        function()
    except HeronError:
        raise
    except SystemExit as e:
        if e.code not in (None, 0):
            text = f"with exit code {e.code}" if isinstance(e.code, int) else f"with: {e.code}"
            raise UserCodeError(f"{shown} ended {text}", "") from e
    except Exception as e:
        # The user's code may raise whatever it likes; all of it is reported to the user.
        raise UserCodeError(f"{shown} failed: {said(e)}", user_traceback(e)) from e


def _serialized(error: HeronError) -> dict[str, str]:
    trace = error.traceback if isinstance(error, UserCodeError) else user_traceback(error)
    return {"type": type(error).__name__, "message": str(error), "traceback": trace}


def _end() -> None:
    """End the process, also when the user's code left a thread behind that would keep it."""
    sys.stdout.flush()
    sys.stderr.flush()
    if any(t is not threading.current_thread() and not t.daemon for t in threading.enumerate()):
        os._exit(0)
    gc.freeze()  # as the command line does at its end
