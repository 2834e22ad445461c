"""Loading a job: its script is run in this process, as Python runs it, up to `Runner().run(name, config, builder)`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

import cloudpickle

import heronpy
from heronpy.errors import ConfigError, HeronError, NotFoundError, TopologyError, UsageError, UserCodeError, nearest
from heronpy.files import user_path
from heronpy.loader import user_traceback
from heronpy.loader.main_code import module_main, script_main
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import MANIFEST_FILE
from heronpy.pipeline.registry import Remembered, known, knows, not_found, recall, remember
from heronpy.shown import said
from heronpy.stores import Store
from heronpy.streamlet.runner import Program, captured

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class Loaded:
    """A job, and what its functions need where they run."""

    job: Job
    root: Path
    """The directory that the script's imports begin at."""
    cwd: Path
    """Paths in its arguments are relative to this."""

    def spark_conf(self) -> dict[str, str]:
        """Settings that let Spark's workers import what the script imports.

        Pickled elements of an archive name classes of the script; a worker that imports it must not run it, and
        HERON_INSTANCE says so, as in a topology.
        """
        return {"spark.executorEnv.PYTHONPATH": str(self.root), "spark.executorEnv.HERON_INSTANCE": "1"}


def is_script(ref: str) -> bool:
    """Whether this names a file, rather than a module or a job."""
    return ref.endswith(".py") or "/" in ref


def is_known(home: Path, ref: str) -> bool:
    """Whether this is the name of a job that was loaded before, so that no arguments can follow it.

    Raises:
        NotFoundError: it is neither that nor a file nor a module.
    """
    if is_script(ref):
        return False
    if knows(home, ref):
        return True
    if not _MODULE.fullmatch(ref) or ("." not in ref and not _is_module(ref)):
        raise not_found(home, ref)
    return False


def load_job(
    ref: str, args: Sequence[str] = (), *, home: Path, name: str | None = None, live: Store | None = None
) -> Loaded:
    """Run a script up to its `Runner().run(…)`, and return the job.

    The script stays the module `__main__` of this process; its functions, and those of the modules beside it, are
    pickled by value from now on, so that Spark's workers need no copy of them. What it prints goes to stderr.

    Args:
        ref: a `.py` file, a dotted module, or the name of a job that was loaded before.
        args: the script's `sys.argv[1:]`; none with the name of a job, which has its own.
        home: where loaded jobs are remembered.
        name: which job, if the script runs several.
        live: where its live views are, if not where the program says.

    Raises:
        NotFoundError: no such file, module or job; the nearest is named.
        UserCodeError: the script failed; with its traceback.
        TopologyError: it runs no program, several, or one that is not valid.
        ConfigError: the program has no batch side.
        SystemExit: the script ended itself, as argparse does.
    """
    if is_known(home, ref):
        if args:
            raise UsageError(f"{ref} was loaded with arguments of its own: name its file to give others")
        how = recall(home, ref)
        name = name or ref
    else:
        job = str(_file(ref)) if is_script(ref) else ref
        how = Remembered(job, tuple(args), str(Path.cwd()))
    with _directory(how.cwd):
        root, programs = _programs(how)
        shown = how.job if ref == how.job else ref
        job_found = Job.of(_choose(shown, programs, name), live=live)
    with contextlib.suppress(ConfigError):  # a name that cannot be a path is reported by those who make paths of it
        _remember(home, job_found, how)
    return Loaded(job_found, root, Path(how.cwd))


def _remember(home: Path, job: Job, how: Remembered) -> None:
    """Give a job its name, unless it is another place's and nothing is here: what a relative directory leads to."""
    before = known(home, job.name)
    is_gone = before is not None and is_script(before.job) and not Path(before.job).exists()
    if before is None or is_gone or (before.job, before.cwd) == (how.job, how.cwd) or _has_begun(job):
        remember(home, job.name, how)
        return
    print(
        f"heron: nothing is archived in {job.directory}: the name {job.name} stays that of {before.job}, loaded in "
        f"{before.cwd}",
        file=sys.stderr,
    )


def _has_begun(job: Job) -> bool:
    """Whether anything of a job is in its directory; in a store that is not looked for."""
    places = [job.directory / MANIFEST_FILE, *map(job.archive_path, job.archives().values())]
    return any(not isinstance(place, Path) or place.exists() for place in places)


def pickle_by_value_in_spark() -> None:
    """Register with PySpark's own copy of cloudpickle what `load_job` has registered with cloudpickle."""
    import pyspark.cloudpickle as theirs

    for module in cloudpickle.list_registry_pickle_by_value():
        theirs.register_pickle_by_value(sys.modules[module])  # type: ignore[no-untyped-call]  # PySpark's own copy


def _file(ref: str) -> Path:
    path = user_path(ref)
    if path.is_dir():
        raise UsageError(f"{ref} is a directory: name a .py file, a dotted module or a job that was loaded before")
    if not path.is_file():
        near = [str(p) for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise NotFoundError(f"no file {ref}{nearest(ref, near)}")
    if path.suffix != ".py":
        raise UsageError(f"{ref} is not a .py file")
    return path.resolve()


def _is_module(name: str) -> bool:
    """Whether there is a module of this name, without dots, in the working directory or installed."""
    if (Path.cwd() / f"{name}.py").is_file():
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # it has been imported from nowhere
        return False


@contextlib.contextmanager
def _directory(cwd: str) -> Iterator[None]:
    try:
        with contextlib.chdir(cwd):
            yield
    except FileNotFoundError as e:
        if e.filename != cwd:
            raise
        raise NotFoundError(f"the job was loaded in {cwd}, which is gone: name its file") from None


def _programs(how: Remembered) -> tuple[Path, list[Program]]:
    root = Path(how.job).parent if is_script(how.job) else Path.cwd()
    sys.path.insert(0, str(root))
    try:
        module, code = script_main(Path(how.job), how.job) if is_script(how.job) else module_main(how.job, root)
    except FileNotFoundError:
        raise NotFoundError(f"no file {how.job}, which the job was loaded from") from None
    before = set(sys.modules)
    with captured() as programs, _argv([how.job, *how.args]), contextlib.redirect_stdout(sys.stderr):
        sys.modules["__main__"] = module
        _execute(how.job, code, module, programs)
    _register(set(sys.modules) - before, root)
    _name_again(how.job, module)
    return root, programs


def _execute(shown: str, code: CodeType, module: ModuleType, programs: list[Program]) -> None:
    try:
        exec(code, module.__dict__)
    except HeronError:
        raise
    except SystemExit as e:
        if isinstance(e.code, str):
            raise UserCodeError(f"{shown} ended with: {e.code}") from e
        if e.code or not programs:
            raise
    except Exception as e:
        # The user's code may raise whatever it likes; all of it is reported to the user.
        raise UserCodeError(f"{shown} failed: {said(e)}", user_traceback(e)) from e


def _choose(shown: str, programs: list[Program], name: str | None) -> Program:
    names = [program.name for program in programs]
    if not names:
        raise TopologyError(f"{shown} runs no streamlet program: it must call Runner().run(name, config, builder)")
    if name is None:
        if len(names) > 1:
            raise TopologyError(f"{shown} runs {len(names)} programs ({', '.join(names)}): choose one with --name")
        return programs[0]
    if names.count(name) > 1:
        raise TopologyError(f"{shown} runs {names.count(name)} programs of the name {name!r}")
    if name not in names:
        raise NotFoundError(f"{shown} runs no program {name!r}{nearest(name, names) or ': ' + ', '.join(names)}")
    return programs[names.index(name)]


def _register(names: set[str], root: Path) -> None:
    """Pickle functions by value of those modules that lie below `root` and are not installed.

    Those of `__main__` always are.
    """
    installed = {Path(sysconfig.get_path(key)).resolve() for key in ("purelib", "platlib", "stdlib")}
    installed |= {Path(heronpy.__file__).resolve().parent, Path(sys.prefix).resolve()}
    below = root.resolve()
    for name in names - {"__main__", "__mp_main__"}:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if module is None or not file:
            continue
        path = Path(file).resolve()
        if path.is_relative_to(below) and not any(path.is_relative_to(place) for place in installed if place != below):
            cloudpickle.register_pickle_by_value(module)


def _name_again(job: str, module: ModuleType) -> None:
    """Let the script be found by the name that it has in a topology's instances, where archives may be pickled."""
    from heronpy.loader.definition import script_module  # as `heron submit` names it

    name = script_module(Path(job)) if is_script(job) else job
    sys.modules.setdefault(name, module)


@contextlib.contextmanager
def _argv(argv: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = argv
    try:
        yield
    finally:
        sys.argv = before


def enter(cwd: Path) -> None:
    """Make this the working directory of the process: relative paths in a job are relative to it.

    Raises:
        NotFoundError: it is gone.
    """
    try:
        os.chdir(cwd)
    except OSError as e:
        raise NotFoundError(f"the job's working directory {cwd} cannot be entered: {e.strerror}") from e
