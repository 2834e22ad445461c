"""Programs that define no topology, or fail: what their user is told."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from user_programs import CLASS_TOPOLOGY, COMPONENTS, SCRIPT, write

from heronpy.errors import ConfigError, NotFoundError, TopologyError, UsageError, UserCodeError
from heronpy.loader import define
from heronpy.testing import eventually_sync


class TestFailures:
    def test_a_missing_file_names_the_nearest_one(self, tmp_path: Path) -> None:
        write(tmp_path, {"letters.py": SCRIPT})
        with pytest.raises(NotFoundError, match=r"did you mean '.*letters\.py'"):
            define(tmp_path / "leters.py", "-")

    def test_a_directory_is_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"is a directory: name a \.py"):
            define(tmp_path, "-")

    def test_a_missing_class_names_the_nearest_one(self, tmp_path: Path) -> None:
        write(tmp_path, {"main.py": CLASS_TOPOLOGY, "parts/components.py": COMPONENTS})
        with pytest.raises(NotFoundError, match=r"no class 'Leters' .*did you mean 'Letters'"):
            define(tmp_path / "main.py", "main.Leters")

    def test_an_empty_file_name_is_no_directory(self) -> None:
        with pytest.raises(NotFoundError, match="no file '', and no name of a module"):
            define("", "-")

    def test_a_script_that_only_has_a_topology_class_is_told_to_name_it(self, tmp_path: Path) -> None:
        write(tmp_path, {"main.py": CLASS_TOPOLOGY, "parts/components.py": COMPONENTS})
        with pytest.raises(TopologyError, match=r"main\.py defined no topology: name its class Letters instead of -"):
            define(tmp_path / "main.py", "-")

    @pytest.mark.parametrize(
        ("method", "misnamed", "said"),
        [
            ("next_tuple", "nextTuple", r"LetterSpout has nextTuple\(\), which is next_tuple\(\) here"),
            ("process", "execute", r"TallyBolt has execute\(\), which is process\(\) here"),
        ],
    )
    def test_a_method_with_storms_name_is_refused(self, tmp_path: Path, method: str, misnamed: str, said: str) -> None:
        components = COMPONENTS.replace(f"def {method}(", f"def {misnamed}(")
        write(tmp_path, {"main.py": CLASS_TOPOLOGY, "parts/components.py": components})
        with pytest.raises(TopologyError, match=said):
            define(tmp_path / "main.py", "Letters")

    def test_a_missing_module_is_not_found(self) -> None:
        with pytest.raises(NotFoundError, match="no_such_package"):
            define("no_such_package.topology", "-")

    def test_a_class_that_is_no_topology_is_refused(self, tmp_path: Path) -> None:
        write(tmp_path, {"main.py": COMPONENTS})
        with pytest.raises(TopologyError, match=r"TallyBolt .* is not a subclass"):
            define(tmp_path / "main.py", "TallyBolt")

    @pytest.mark.parametrize("cls", ["-", "Letters"])
    def test_a_failing_import_shows_the_users_traceback_and_not_the_engines(self, tmp_path: Path, cls: str) -> None:
        write(tmp_path, {"main.py": "import helper\n", "helper.py": "def f():\n    return 1 / 0\n\nf()\n"})
        with pytest.raises(UserCodeError, match="ZeroDivisionError") as raised:
            define(tmp_path / "main.py", cls)
        assert 'helper.py", line 2, in f' in raised.value.traceback
        assert "/heronpy/" not in raised.value.traceback
        assert "importlib" not in raised.value.traceback

    def test_a_module_that_the_script_lacks_is_an_error_of_the_script(self, tmp_path: Path) -> None:
        write(tmp_path, {"main.py": "import no_such_dependency\n"})
        with pytest.raises(UserCodeError, match="no_such_dependency") as raised:
            define(tmp_path / "main.py", "Letters")
        assert "main.py" in raised.value.traceback

    @pytest.mark.parametrize("line", ["def broken(:", "  broken = 1"])
    def test_a_syntax_error_shows_the_line(self, tmp_path: Path, line: str) -> None:
        write(tmp_path, {"main.py": f"import sys\n{line}\n"})
        with pytest.raises(UserCodeError, match=r"SyntaxError|IndentationError") as raised:
            define(tmp_path / "main.py", "-")
        assert line.strip() in raised.value.traceback
        assert "heronpy" not in raised.value.traceback

    def test_an_invalid_topology_is_told_in_one_line(self, tmp_path: Path) -> None:
        write(tmp_path, {"main.py": SCRIPT.replace("Grouping.custom(First())", 'Grouping.fields("leter")')})
        with pytest.raises(TopologyError, match=r"'leter', which is not a field .*did you mean 'letter'"):
            define(tmp_path / "main.py", "-", ["Alphabet"])

    def test_an_unknown_configuration_key_is_told_in_one_line(self, tmp_path: Path) -> None:
        write(tmp_path, {"main.py": SCRIPT.replace('"limits": Limits(7)', '"topology.max.spout.pendin": 7')})
        with pytest.raises(ConfigError, match=r"did you mean 'topology\.max\.spout\.pending'"):
            define(tmp_path / "main.py", "-", ["Alphabet"])

    def test_a_script_that_defines_nothing_is_told_what_to_do(self, tmp_path: Path) -> None:
        write(tmp_path, {"main.py": "print('hello')\n"})
        with pytest.raises(TopologyError, match="build_and_submit"):
            define(tmp_path / "main.py", "-")

    def test_two_topologies_are_one_too_many(self, tmp_path: Path) -> None:
        twice = SCRIPT + '\n    builder.topology_name = "Second"\n    builder.build_and_submit()\n'
        write(tmp_path, {"main.py": twice})
        with pytest.raises(TopologyError, match="2 topologies \\(Alphabet, Second\\)"):
            define(tmp_path / "main.py", "-", ["Alphabet"])

    def test_an_exit_code_is_told(self, tmp_path: Path) -> None:
        write(tmp_path, {"main.py": "import sys\nsys.exit('name is missing')\n"})
        with pytest.raises(UserCodeError, match="name is missing"):
            define(tmp_path / "main.py", "-")

    def test_a_script_that_kills_its_process_is_told(self, tmp_path: Path) -> None:
        write(tmp_path, {"main.py": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"})
        with pytest.raises(UserCodeError, match="by signal 9"):
            define(tmp_path / "main.py", "-")

    def test_a_script_that_hangs_is_ended_with_everything_that_it_started(self, tmp_path: Path) -> None:
        pids = tmp_path / "pids"
        hang = f"""
            import os, subprocess, time
            child = subprocess.Popen(["sleep", "600"])
            with open({str(pids)!r}, "w") as f:
                f.write(f"{{os.getpid()}} {{child.pid}}")
            time.sleep(600)
        """
        write(tmp_path, {"main.py": hang})
        for timeout_s in (5, 30, 120):  # until it has come so far that there is something to end
            with pytest.raises(UserCodeError, match=f"within {timeout_s} s") as caught:
                define(tmp_path / "main.py", "-", timeout_s=timeout_s)
            if pids.exists() and len(pids.read_text().split()) == 2:
                break
        assert re.search(r'main\.py", line \d+ in <module>', caught.value.traceback), "where it hangs is not said"
        eventually_sync(lambda: gone(pids.read_text().split()))

    def test_the_process_ends_with_the_one_that_submits(self, tmp_path: Path) -> None:
        pids = tmp_path / "pids"
        hang = f"""
            import os, time
            with open({str(pids)!r}, "w") as f:
                f.write(str(os.getpid()))
            time.sleep(600)
        """
        write(tmp_path, {"main.py": hang})
        submit = f"from heronpy.loader import define; define({str(tmp_path / 'main.py')!r}, '-')"
        submitter = subprocess.Popen([sys.executable, "-c", submit], cwd=Path(__file__).parents[2])
        try:
            eventually_sync(lambda: written(pids))
        finally:
            submitter.send_signal(signal.SIGKILL)
            submitter.wait()
        eventually_sync(lambda: gone(pids.read_text().split()))

    def test_definitions_can_be_made_from_several_threads(self, tmp_path: Path) -> None:
        write(tmp_path, {"letters.py": SCRIPT})
        with ThreadPoolExecutor(2) as pool:
            made = pool.map(lambda name: define(tmp_path / "letters.py", "-", [name]).name, ("One", "Two"))
            assert list(made) == ["One", "Two"]


def written(path: Path) -> None:
    assert path.exists()
    assert path.read_text()


def gone(pids: list[str]) -> None:
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat")
        # A zombie whose parent has not waited for it yet is dead, too.
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
