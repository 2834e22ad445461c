"""What the user's code needs on the hosts that run it: its requirements, and Python itself.

At submit, in the topology's directory:

    collect_requirements(file, launch.dir / "package")     # as wheels, in the package
    pack_environment(archive)                              # heron.package.python: ship

On a host, where `heronpy.container` has made the topology's directory:

    install(launch)                                        # fetches the packages, installs the requirements
    install(launch, code)                                  # the same for code that has come since

`python_command` is the Python that runs a container: what a scheduler puts before `-m heronpy.container`.
"""

from heronpy.environment._command import python_command
from heronpy.environment._install import install, is_installed
from heronpy.environment._requirements import (
    REQUIREMENTS_PATH,
    collect_requirements,
    has_requirements,
    install_requirements,
)
from heronpy.environment._ship import PYTHON, own_tag, pack_distributions, pack_environment

__all__ = [
    "PYTHON",
    "REQUIREMENTS_PATH",
    "collect_requirements",
    "has_requirements",
    "install",
    "install_requirements",
    "is_installed",
    "own_tag",
    "pack_distributions",
    "pack_environment",
    "python_command",
]
