"""User code in real files and archives: defined in a process of its own, staged, and loaded as an instance loads it."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from user_programs import (
    CLASS_TOPOLOGY,
    COMPONENTS,
    NAMED_MODULES,
    NAMING_TOPOLOGY,
    SCRIPT,
    archive,
    classes,
    in_instance,
    write,
)

from heronpy.errors import AlreadyExistsError, NotFoundError, UsageError
from heronpy.loader import define, stage


class TestScripts:
    def test_a_script_defines_its_topology_and_its_classes_load_in_an_instance(self, tmp_path: Path) -> None:
        write(tmp_path / "src", {"letters.py": SCRIPT})
        definition = define(tmp_path / "src" / "letters.py", "-", ["Alphabet"])
        assert definition.name == "Alphabet"
        assert classes(definition) == {"letters": "letters.LetterSpout", "tallies": "letters.TallyBolt"}
        printed = in_instance(definition, tmp_path / "D", "print(load_class('letters.TallyBolt').__module__)")
        assert printed.strip() == "letters"

    def test_objects_pickled_while_the_script_was_main_have_the_classes_of_the_instance(self, tmp_path: Path) -> None:
        write(tmp_path / "src", {"letters.py": SCRIPT})
        definition = define(tmp_path / "src" / "letters.py", "-", ["Alphabet"])
        printed = in_instance(
            definition,
            tmp_path / "D",
            f"""
            import pickle
            from heronpy.api import typed_config
            from heronpy.plan import LogicalPlan
            from heronpy.proto import topology_pb2

            proto = topology_pb2.Topology.FromString({definition.proto.SerializeToString()!r})
            bolt = LogicalPlan.from_proto(proto).components["tallies"]
            grouping = pickle.loads(bolt.inputs[0].custom)
            limits = typed_config(bolt.config)["limits"]
            print(type(grouping) is load_class("letters.First"), isinstance(grouping, load_class("__main__.First")))
            print(type(limits) is load_class("letters.Limits"), limits.most)
            """,
        )
        assert printed.split() == ["True", "True", "True", "7"]

    def test_instances_exchange_pickled_objects_of_the_script(self, tmp_path: Path) -> None:
        write(tmp_path / "src", {"letters.py": SCRIPT})
        definition = define(tmp_path / "src" / "letters.py", "-", ["Alphabet"])
        pickled = in_instance(
            definition,
            tmp_path / "D1",
            "import pickle; print(pickle.dumps(load_class('letters.Limits')(11)).hex())",
        )
        printed = in_instance(
            definition,
            tmp_path / "D2",
            f"""
            import pickle
            received = pickle.loads(bytes.fromhex({pickled.strip()!r}))
            print(type(received) is load_class("letters.Limits"), received.most)
            """,
        )
        assert printed.split() == ["True", "11"]

    def test_a_script_without_a_guard_submits_nothing_from_an_instance_and_sees_its_arguments(
        self, tmp_path: Path
    ) -> None:
        unguarded = SCRIPT.replace('if __name__ == "__main__":', "if len(sys.argv) != 2:\n    sys.exit(1)\nif True:")
        write(tmp_path / "src", {"letters.py": unguarded})
        definition = define(tmp_path / "src" / "letters.py", "-", ["Alphabet"])
        printed = in_instance(definition, tmp_path / "D", "print(load_class('letters.TallyBolt').__name__)")
        assert printed.strip() == "TallyBolt"

    @pytest.mark.parametrize("name", ["word-count.py", "queue.py", "my.letters.py"])
    def test_a_script_may_be_called_what_no_module_can_be(self, tmp_path: Path, name: str) -> None:
        write(tmp_path / "src", {name: SCRIPT})
        definition = define(tmp_path / "src" / name, "-", ["Alphabet"])
        path = classes(definition)["tallies"]
        assert in_instance(definition, tmp_path / "D", f"print(load_class({path!r}).__name__)").strip() == "TallyBolt"

    def test_a_class_in_such_a_script_can_be_named_alone(self, tmp_path: Path) -> None:
        topology = CLASS_TOPOLOGY.replace("from parts.components import LetterSpout, TallyBolt", COMPONENTS)
        write(tmp_path / "src", {"word-count.py": topology})
        definition = define(tmp_path / "src" / "word-count.py", "Letters")
        path = classes(definition)["tallies"]
        assert in_instance(definition, tmp_path / "D", f"print(load_class({path!r}).__name__)").strip() == "TallyBolt"

    def test_modules_that_the_script_imports_go_with_it_and_others_stay(self, tmp_path: Path) -> None:
        write(
            tmp_path / "src",
            {
                "main.py": CLASS_TOPOLOGY,
                "parts/__init__.py": "",
                "parts/components.py": COMPONENTS.replace("self.ack(tup)", "import lazily; lazily.seen(self, tup)"),
                "parts/words.txt": "data",
                "lazily.py": "import deeper\n\ndef seen(bolt, tup):\n    bolt.ack(tup)\n",
                "deeper.py": "",
                "unrelated.py": "raise RuntimeError('not wanted')",
            },
        )
        definition = define(tmp_path / "src" / "main.py", "main.Letters")
        assert in_instance(definition, tmp_path / "D", "print(load_class('parts.components.TallyBolt').__name__)")
        staged = {str(p.relative_to(tmp_path / "D" / "package")) for p in (tmp_path / "D" / "package").rglob("*.*")}
        assert {"main.py", "parts/components.py", "parts/words.txt", "lazily.py", "deeper.py"} <= staged
        assert "unrelated.py" not in staged

    @pytest.mark.parametrize("cls", ["Letters", "-"])
    def test_modules_that_only_a_class_path_names_go_with_it(self, tmp_path: Path, cls: str) -> None:
        write(tmp_path / "src", {"main.py": NAMING_TOPOLOGY, **NAMED_MODULES})
        definition = define(tmp_path / "src" / "main.py", cls)
        code = "for path in ('named_hooks.Hook', 'named_serializer.Own', 'named_grouping.First'): load_class(path)"
        in_instance(definition, tmp_path / "D", code)

    @pytest.mark.parametrize("lacking", ["named_hooks", "named_serializer", "named_grouping"])
    def test_a_class_path_that_leads_nowhere_is_refused_with_its_place(self, tmp_path: Path, lacking: str) -> None:
        modules = {name: text for name, text in NAMED_MODULES.items() if name != f"{lacking}.py"}
        write(tmp_path, {"main.py": NAMING_TOPOLOGY, **modules})
        with pytest.raises(NotFoundError, match=f"^(topology.*|tallies): .*no module '{lacking}'"):
            define(tmp_path / "main.py", "Letters")

    def test_modules_from_pythonpath_go_with_the_script(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path / "lib", {"parts/__init__.py": "", "parts/components.py": COMPONENTS})
        write(tmp_path / "src", {"main.py": CLASS_TOPOLOGY})
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
        definition = define(tmp_path / "src" / "main.py", "Letters")
        assert in_instance(definition, tmp_path / "D", "print(load_class('parts.components.TallyBolt').__name__)")

    def test_a_class_of_a_module_in_a_package_can_be_named_by_its_full_path(self, tmp_path: Path) -> None:
        relative = CLASS_TOPOLOGY.replace("from parts.components", "from .components")
        write(
            tmp_path,
            {"jobs/parts/__init__.py": "", "jobs/parts/components.py": COMPONENTS, "jobs/parts/t.py": relative},
        )
        definition = define(tmp_path / "jobs" / "parts" / "t.py", "jobs.parts.t.Letters")
        assert classes(definition)["tallies"] == "jobs.parts.components.TallyBolt"
        assert in_instance(definition, tmp_path / "D", "print(load_class('jobs.parts.components.TallyBolt').__name__)")

    @pytest.mark.parametrize("cls", ["jobs.letters.Letters", "Letters", "-"])
    def test_a_module_can_be_named_instead_of_a_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cls: str
    ) -> None:
        topology = CLASS_TOPOLOGY.replace("from parts.components", "from .components")
        write(
            tmp_path,
            {
                "jobs/__init__.py": "",
                "jobs/components.py": COMPONENTS,
                "jobs/letters.py": topology + '\nif __name__ == "__main__":\n    Letters.write()\n',
            },
        )
        monkeypatch.chdir(tmp_path)
        definition = define("jobs.letters", cls)
        assert definition.name == "Letters"
        assert in_instance(definition, tmp_path / "D", "print(load_class('jobs.components.TallyBolt').__name__)")

    def test_name_state_and_arguments_reach_the_script(self, tmp_path: Path) -> None:
        write(tmp_path, {"letters.py": SCRIPT})
        definition = define(tmp_path / "letters.py", "-", ["Alphabet"], name="Other", initial_state="PAUSED")
        assert definition.name == "Other"
        assert definition.proto.state == 2

    def test_what_the_script_prints_goes_to_the_terminal(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        write(tmp_path, {"letters.py": SCRIPT + '\nprint("to stdout")\nprint("to stderr", file=sys.stderr)\n'})
        define(tmp_path / "letters.py", "-", ["Alphabet"])
        captured = capfd.readouterr()
        assert captured.out == "to stdout\n"
        assert captured.err == "to stderr\n"

    def test_a_thread_that_the_script_leaves_behind_keeps_nobody_waiting(self, tmp_path: Path) -> None:
        left = "\nimport threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
        write(tmp_path, {"letters.py": SCRIPT + left})
        began = time.monotonic()
        define(tmp_path / "letters.py", "-", ["Alphabet"])
        assert time.monotonic() - began < 30

    def test_staging_twice_is_refused(self, tmp_path: Path) -> None:
        write(tmp_path, {"letters.py": SCRIPT})
        definition = define(tmp_path / "letters.py", "-", ["Alphabet"])
        stage(definition, tmp_path / "D")
        with pytest.raises(AlreadyExistsError):
            stage(definition, tmp_path / "D")


class TestArchives:
    def test_a_zip_is_run_by_its_main_and_loaded_from_what_was_extracted(self, tmp_path: Path) -> None:
        path = archive(tmp_path / "app.zip", {"__main__.py": SCRIPT + "\nimport inside\n", "inside.py": ""})
        definition = define(path, "-", ["Alphabet"])
        tally = classes(definition)["tallies"]
        printed = in_instance(
            definition,
            tmp_path / "D",
            f"import inside; print(load_class({tally!r}) is load_class('__main__.TallyBolt'))",
        )
        assert printed.strip() == "True"
        assert (tmp_path / "D" / "package" / "inside.py").is_file()

    def test_a_class_in_a_zip_is_found_by_its_path(self, tmp_path: Path) -> None:
        path = archive(
            tmp_path / "app.zip",
            {"jobs.py": CLASS_TOPOLOGY, "parts/__init__.py": "", "parts/components.py": COMPONENTS},
        )
        definition = define(path, "jobs.Letters")
        assert in_instance(definition, tmp_path / "D", "print(load_class('parts.components.TallyBolt').__name__)")

    @pytest.mark.parametrize(
        ("entry_point", "cls", "args"),
        [
            ("jobs.letters", "-", ["Alphabet"]),
            ("jobs.letters:main", "-", ["Alphabet"]),
            ("", "jobs.topologies.Letters", []),
        ],
    )
    def test_a_pex_runs_with_our_heronpy_and_its_own_dependencies(
        self, tmp_path: Path, entry_point: str, cls: str, args: list[str]
    ) -> None:
        path = self.pex(tmp_path, entry_point)
        definition = define(path, cls, args)
        assert ".deps/dep_of_theirs-1.0-py3-none-any.whl" in definition.package_paths
        tally = classes(definition)["tallies"]
        printed = in_instance(
            definition,
            tmp_path / "D",
            f"""
            import dep_of_theirs
            import heronpy
            print(load_class({tally!r}).__name__, dep_of_theirs.ANSWER, hasattr(heronpy, "OLD"))
            """,
        )
        assert printed.split() == ["TallyBolt", "42", "False"]
        staged = tmp_path / "D" / "package"
        assert not (staged / "heronpy").exists()
        assert not (staged / ".bootstrap").exists()
        assert not list((staged / ".deps").glob("heronpy*"))

    @staticmethod
    def pex(directory: Path, entry_point: str) -> Path:
        old = "OLD = True\nraise RuntimeError('the bundled heronpy was imported')\n"
        function = SCRIPT.replace('if __name__ == "__main__":', "def main():")
        info: dict[str, Any] = {
            "entry_point": entry_point or None,
            "distributions": {"dep_of_theirs-1.0-py3-none-any.whl": "0", "heronpy-0.20.5-py3-none-any.whl": "0"},
        }
        path = archive(
            directory / "app.pex",
            {
                "PEX-INFO": json.dumps(info),
                "__main__.py": "raise RuntimeError('the bootstrap was run')",
                ".bootstrap/pex/__init__.py": old,
                "heronpy/__init__.py": old,
                "heronpy/api/__init__.py": old,
                ".deps/heronpy-0.20.5-py3-none-any.whl/heronpy/__init__.py": old,
                ".deps/dep_of_theirs-1.0-py3-none-any.whl/dep_of_theirs/__init__.py": "ANSWER = 42\n",
                "jobs/__init__.py": "import dep_of_theirs\n",
                "jobs/letters.py": function if ":" in entry_point else SCRIPT,
                "jobs/topologies.py": CLASS_TOPOLOGY,
                "parts/__init__.py": "",
                "parts/components.py": COMPONENTS,
            },
        )
        # A pex is an executable zip: the zip archive stands behind a line for the shell.
        path.write_bytes(b"#!/usr/bin/env python3\n" + path.read_bytes())
        return path

    @pytest.mark.parametrize("member", ["../outside.py", "/tmp/outside.py", "a/../../outside.py", "a\\..\\..\\b.py"])
    def test_an_archive_that_writes_elsewhere_is_refused(self, tmp_path: Path, member: str) -> None:
        path = archive(tmp_path / "app.zip", {"__main__.py": SCRIPT, member: "print('outside')"})
        with pytest.raises(UsageError, match="would be written elsewhere"):
            define(path, "-", ["Alphabet"])
        assert not (tmp_path / "outside.py").exists()

    def test_a_link_in_an_archive_is_refused(self, tmp_path: Path) -> None:
        path = archive(tmp_path / "app.zip", {"__main__.py": SCRIPT})
        with zipfile.ZipFile(path, "a") as f:
            link = zipfile.ZipInfo("link")
            link.external_attr = 0o120777 << 16
            f.writestr(link, "/etc/passwd")
        with pytest.raises(UsageError, match="is a link"):
            define(path, "-", ["Alphabet"])

    @pytest.mark.parametrize(
        ("name", "files", "cls", "expected"),
        [
            ("app.zip", {"jobs.py": CLASS_TOPOLOGY}, "-", "no __main__.py"),
            ("app.zip", {"jobs.py": CLASS_TOPOLOGY}, "Letters", "no entry point: name the class"),
            ("app.pex", {"PEX-INFO": "{}"}, "-", "no entry point to run"),
            ("app.pex", {"PEX-INFO": "nonsense"}, "-", "PEX-INFO is not valid JSON"),
        ],
    )
    def test_an_archive_that_does_not_say_what_to_run_is_refused(
        self, tmp_path: Path, name: str, files: dict[str, str], cls: str, expected: str
    ) -> None:
        with pytest.raises(UsageError, match=expected):
            define(archive(tmp_path / name, files), cls)

    def test_a_file_that_is_no_archive_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "app.pex").write_text("not a zip")
        with pytest.raises(UsageError, match=r"app\.pex is not a zip archive"):
            define(tmp_path / "app.pex", "-")
