"""The user's code: run once to define a topology, copied to where the topology runs, and loaded there.

    definition = define("word_count.py", "WordCount", [])     # in a process of its own
    staged = stage(definition, launch.dir)                     # launch.dir/package/
    launch = replace(launch, package_paths=staged.package_paths, main_file=staged.main_file)
    …
    activate(launch)                                           # in every instance, once
    cls = load_class("word_count.CountBolt")

A script that is run with `-` is the module `__main__` while it defines its topology, but in the instances it is a
module with a name of its own, and `__main__` is another name for that module. So the classes of the script are the same
in every instance, whether they are named in the definition, pickled by it, or pickled by another instance.
"""

from heronpy.loader._archive import extract as extract_archive
from heronpy.loader._archive import package_paths_of
from heronpy.loader._define import define
from heronpy.loader._load import PACKAGE, activate, load_class
from heronpy.loader._stage import Staged, importable, stage, version_of
from heronpy.loader._traceback import user_traceback
from heronpy.loader.definition import MODULES_KEY, Definition, MainModule

__all__ = [
    "MODULES_KEY",
    "PACKAGE",
    "Definition",
    "MainModule",
    "Staged",
    "activate",
    "define",
    "extract_archive",
    "importable",
    "load_class",
    "package_paths_of",
    "stage",
    "user_traceback",
    "version_of",
]
