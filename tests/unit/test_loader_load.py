"""Finding classes by their path, and showing users their own traceback."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from shortages import no_descriptors

from heronpy.api import Bolt, Spout, TopologyBuilder
from heronpy.errors import NotFoundError, ReadFailedError, UserCodeError
from heronpy.loader import Definition, load_class, user_traceback
from heronpy.loader.main_code import module_main, script_main
from heronpy.loader.sources import collect, roots


class TickSpout(Spout):
    outputs = ("tick",)


class Outer:
    class InnerBolt(Bolt):
        pass


@pytest.fixture
def user_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


class TestLoadClass:
    def test_a_class_and_a_nested_class_are_found(self) -> None:
        assert load_class(f"{__name__}.Outer") is Outer
        assert load_class(f"{__name__}.Outer.InnerBolt") is Outer.InnerBolt

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            (f"{__name__}.Outr", "no class 'Outr'; did you mean 'Outer'"),
            (f"{__name__}.Outer.InerBolt", "did you mean 'InnerBolt'"),
            (f"{__name__}.__name__", "is not a class"),
            ("no_such_package.module.Class", "no module 'no_such_package'"),
            ("Class", "is not a class path"),
            ("", "is not a class path"),
            ("a..b", "is not a class path"),
        ],
    )
    def test_what_is_not_there_is_not_found(self, path: str, expected: str) -> None:
        with pytest.raises(NotFoundError, match=expected):
            load_class(path)

    def test_a_module_that_fails_shows_the_users_lines_only(self, user_dir: Path) -> None:
        (user_dir / "user_failing.py").write_text("def f():\n    raise KeyError('lost')\n\nf()\n")
        with pytest.raises(UserCodeError, match="KeyError: 'lost'") as raised:
            load_class("user_failing.Bolt")
        assert 'user_failing.py", line 2, in f' in raised.value.traceback
        assert "heronpy/loader" not in raised.value.traceback

    def test_a_module_that_lacks_another_is_the_users_error(self, user_dir: Path) -> None:
        (user_dir / "user_lacking.py").write_text("import user_missing\n")
        with pytest.raises(UserCodeError, match="user_missing"):
            load_class("user_lacking.Bolt")

    def test_a_module_that_exits_does_not_end_the_process(self, user_dir: Path) -> None:
        (user_dir / "user_exiting.py").write_text("raise SystemExit(3)\n")
        with pytest.raises(UserCodeError, match="SystemExit: 3"):
            load_class("user_exiting.Bolt")


class TestTraceback:
    def test_engine_frames_are_cut_also_from_the_cause(self) -> None:
        def fail() -> None:
            try:
                load_class("")
            except NotFoundError as e:
                raise ValueError("mine") from e

        with pytest.raises(ValueError, match="mine") as raised:
            fail()
        text = user_traceback(raised.value)
        assert text.count("test_loader_load.py") >= 2
        assert "heronpy/loader/_load.py" not in text
        assert text.rstrip().endswith("ValueError: mine")

    def test_an_error_of_the_engine_alone_keeps_its_frames(self) -> None:
        with pytest.raises(AttributeError) as raised:
            collect([], [], {"x.py": "no path"})  # type: ignore[dict-item]  # to make the engine fail
        trace = raised.value.__traceback__
        assert trace is not None
        assert "sources.py" in user_traceback(raised.value.with_traceback(trace.tb_next))


class TestSources:
    def test_imports_are_followed_and_the_engine_and_the_standard_library_left_out(self, tmp_path: Path) -> None:
        files = {
            "script.py": "import a\nimport json, heronpy\nfrom pkg.deep import x",
            "a.py": "def f():\n    from b import y",
            "b.py": "import a",
            "json.py": "",
            "heronpy.py": "",
            "pkg/__init__.py": "from . import deep",
            "pkg/deep.py": "import c",
            "c.py": "",
            "unused.py": "",
            "empty/readme.txt": "",
        }
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        found = collect([], [tmp_path], {"script.py": tmp_path / "script.py"})
        assert set(found) == {"script.py", "a.py", "b.py", "pkg", "c.py"}

    def test_a_file_that_cannot_be_read_now_is_not_one_without_imports(self, tmp_path: Path) -> None:
        (tmp_path / "script.py").write_text("import a")
        with no_descriptors(), pytest.raises(ReadFailedError, match="Too many open files"):
            collect([], [tmp_path], {"script.py": tmp_path / "script.py"})

    def test_a_module_called_like_one_of_the_library_goes_along_if_it_was_imported(self, tmp_path: Path) -> None:
        (tmp_path / "queue.py").write_text("")
        assert set(collect(["queue"], [tmp_path], {})) == {"queue.py"}

    def test_a_package_that_is_a_link_keeps_the_name_that_it_is_imported_by(self, tmp_path: Path) -> None:
        (tmp_path / "versions" / "v2").mkdir(parents=True)
        (tmp_path / "versions" / "v2" / "__init__.py").write_text("")
        (tmp_path / "app").mkdir()
        (tmp_path / "app" / "shop").symlink_to(tmp_path / "versions" / "v2")
        assert set(collect(["shop"], [tmp_path / "app"], {})) == {"shop"}

    def test_packages_of_another_environment_stay_where_they_are(self, tmp_path: Path) -> None:
        (own := tmp_path / "project").mkdir()
        (other := tmp_path / "lib" / "site-packages").mkdir(parents=True)
        assert roots([str(own), str(other)]) == [own]


class TestDefinitionOfThisProcess:
    def test_the_modules_of_the_components_go_along(self) -> None:
        builder = TopologyBuilder("Ticks")
        builder.add_spout("ticks", TickSpout, 1)
        definition = Definition.of(builder)
        assert definition.name == "Ticks"
        assert definition.sources[f"{Path(__file__).name}"] == Path(__file__).resolve()
        assert definition.main is None

    def test_classes_of_the_main_script_get_its_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script = tmp_path / "ticker.py"
        script.write_text("import beside\n")
        (tmp_path / "beside.py").write_text("")
        main = types.ModuleType("__main__")
        main.__file__ = str(script)
        monkeypatch.setitem(sys.modules, "__main__", main)
        monkeypatch.syspath_prepend(str(tmp_path))
        spout = type("MainSpout", (TickSpout,), {"__module__": "__main__"})
        builder = TopologyBuilder("Ticks")
        builder.add_spout("ticks", spout, 1)
        definition = Definition.of(builder)
        assert definition.proto.spouts[0].comp.class_name == "ticker.MainSpout"
        assert set(definition.sources) == {"ticker.py", "beside.py"}
        assert definition.main_file == "ticker.py"


class TestMainCode:
    @pytest.fixture(autouse=True)
    def _importable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.syspath_prepend(tmp_path)
        yield
        for name in [name for name in sys.modules if name.startswith("mainly")]:
            del sys.modules[name]

    def test_a_module_runs_as_python_m_runs_it(self, tmp_path: Path) -> None:
        (tmp_path / "mainly_run.py").write_text("seen = (__name__, __file__, __package__, __spec__.name)")
        module, code = module_main("mainly_run", tmp_path)
        exec(code, module.__dict__)
        assert module.seen == ("__main__", str(tmp_path / "mainly_run.py"), "", "mainly_run")

    def test_a_script_runs_as_python_runs_it(self, tmp_path: Path) -> None:
        (tmp_path / "script.py").write_text("seen = (__name__, __file__, __package__, __spec__)")
        module, code = script_main(tmp_path / "script.py", "script.py")
        exec(code, module.__dict__)
        assert module.seen == ("__main__", str(tmp_path / "script.py"), None, None)

    @pytest.mark.parametrize(
        ("name", "error", "said"),
        [
            ("mainly_absent", NotFoundError, "no module 'mainly_absent' in here, and none is installed"),
            ("mainly_pkg.absent", NotFoundError, "no module 'mainly_pkg.absent' in here, and none is installed"),
            ("mainly_pkg", NotFoundError, "mainly_pkg is a package and cannot be run: name a module in it"),
            ("mainly_broken.job", UserCodeError, "mainly_broken.job cannot be imported: No module named 'absent'"),
            ("mainly_syntax", UserCodeError, "mainly_syntax failed: SyntaxError: "),
        ],
    )
    def test_what_cannot_be_run_is_named(self, tmp_path: Path, name: str, error: type[Exception], said: str) -> None:
        files = {"mainly_pkg/__init__.py": "", "mainly_broken/__init__.py": "import absent", "mainly_syntax.py": "1 +"}
        for file, text in {**files, "mainly_broken/job.py": ""}.items():
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_text(text)
        with pytest.raises(error) as raised:
            module_main(name, "here")
        assert str(raised.value).startswith(said)
