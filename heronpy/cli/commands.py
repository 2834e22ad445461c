"""What commands of other packages share with those of the CLI: options and their style.

`heronpy.pipeline`, `heronpy.viz` and `heron_tracker` bring commands of their own. Tables are in `heronpy.cli.tables`,
which needs rich, and the place of a
running topology in `heronpy.cli.places`: both are imported when they are needed.
"""

from heronpy.cli._app import Verbs, verbose
from heronpy.cli._options import ConfigPath, ConfigProperty, Verbose, home, read_properties
from heronpy.cli._submit import end_options

__all__ = [
    "ConfigPath",
    "ConfigProperty",
    "Verbose",
    "Verbs",
    "end_options",
    "home",
    "read_properties",
    "verbose",
]
