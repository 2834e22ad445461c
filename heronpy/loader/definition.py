"""A topology's definition, and what of the user's code belongs to it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.api import api_constants
from heronpy.errors import TopologyError
from heronpy.loader.sources import ENGINE, collect, imports, roots, top_level_names
from heronpy.plan import LogicalPlan
from heronpy.proto import topology_pb2

if TYPE_CHECKING:
    from heronpy.api import TopologyBuilder


MODULES_KEY = "loader.modules"
"""Configuration key of a component: modules, with spaces between, that its configuration has pickled objects of."""


@dataclass(frozen=True, slots=True)
class MainModule:
    """The user's script, as a module."""

    module: str
    """The name that it has in the instances."""
    file: str = ""
    """Its file, relative to the package; empty if `module` can be imported by name."""
    argv: tuple[str, ...] = ()
    """Its arguments, `sys.argv`."""
    was_main: bool = False
    """It was run as a script, so definitions may name it `__main__`."""


@dataclass(frozen=True)
class Definition:
    """A topology, and where its code is."""

    proto: topology_pb2.Topology = field(repr=False)
    package: Path | None = None
    """The archive, script, or directory that was named; None if all code is installed."""
    sources: Mapping[str, Path] = field(default_factory=dict)
    """What is copied into the package: place in the package, and file or directory. Archives are extracted instead."""
    package_paths: tuple[str, ...] = (".",)
    """Directories for sys.path, relative to the package, first first."""
    main: MainModule | None = None
    """The user's script, if its classes are not imported by an ordinary name."""

    @property
    def name(self) -> str:
        """The topology's name."""
        return self.proto.name

    @property
    def main_file(self) -> str:
        """The user's script, relative to the package; empty if there is none."""
        return self.main.file if self.main else ""

    @classmethod
    def of(cls, topology: TopologyBuilder | type[Any]) -> Definition:
        """The definition of a topology of this very process: for tests, notebooks' scripts and benchmarks.

        The modules of its components, and what these import, are copied unless they are installed.

        Raises:
            TopologyError: the topology is not valid, or a class of it was typed into a prompt.
            ConfigError: an unknown configuration key or a wrong value.
        """
        built = topology if isinstance(topology, type) else topology.build()
        proto = topology_pb2.Topology()
        proto.CopyFrom(built.protobuf_topology)
        main = _own_main() if any(c.class_name.startswith("__main__.") for c in _components(proto)) else None
        plan = LogicalPlan.from_proto(proto)
        start = {path.partition(".")[0] for _, path in class_paths(plan)} | _pickled_modules(plan)
        scripts = {main.file: Path(_main_path())} if main and main.file else {}
        sources = collect(start - {"__main__"}, roots(), scripts)
        if main:
            rename_main(proto, main.module)
        return cls(proto=proto, sources=sources, main=main)


def class_paths(plan: LogicalPlan) -> Iterator[tuple[str, str]]:
    """Everything that a topology names by a class path: where it does so, and the path."""
    for component in plan.components.values():
        yield component.name, component.class_name
        for declared in component.inputs:
            if declared.custom_class:
                yield component.name, declared.custom_class
        config = plan.config_of(component.name)
        for key in (api_constants.TOPOLOGY_SERIALIZER_CLASSNAME, api_constants.TOPOLOGY_AUTO_TASK_HOOKS):
            paths = config.get(key) or ()
            yield from ((key, path) for path in ([paths] if isinstance(paths, str) else paths))


def rename_main(proto: topology_pb2.Topology, module: str) -> None:
    """Give the classes of `__main__` the name that their module has in the instances."""
    for component in _components(proto):
        if component.class_name.startswith("__main__."):
            component.class_name = module + component.class_name.removeprefix("__main__")


def script_module(path: Path) -> str:
    """The name of a script as a module: its file's, unless another module has it or nothing could import it."""
    name = path.stem
    taken = name in sys.stdlib_module_names or name in ENGINE or name.startswith("__")
    if taken or "." in name:
        return "heron_script_" + re.sub(r"\W", "_", name).strip("_")
    return name


def _components(proto: topology_pb2.Topology) -> list[topology_pb2.Component]:
    return [spout.comp for spout in proto.spouts] + [bolt.comp for bolt in proto.bolts]


def _main_path() -> str:
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        raise TopologyError("a class of the topology was typed into a prompt: put it into a file")
    return str(path)


def _pickled_modules(plan: LogicalPlan) -> set[str]:
    """The user's top-level modules that the pickled objects in the components' configurations come from."""
    named = {name for c in plan.components for name in str(plan.config_of(c).get(MODULES_KEY, "")).split()}
    found = set(top_level_names(roots(), {name.partition(".")[0] for name in named}))
    path = getattr(sys.modules["__main__"], "__file__", None)
    if "__main__" in named and path is not None:
        # Functions of the script are pickled themselves, and may import only when they are called.
        found.update(set(imports(Path(path))) - sys.stdlib_module_names)
    return found


def _own_main() -> MainModule:
    """This process's `__main__`, as the instances will know it."""
    path = Path(_main_path())
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name:
        return MainModule(spec.name, "", tuple(sys.argv), was_main=True)
    return MainModule(script_module(path), path.name, tuple(sys.argv), was_main=True)
