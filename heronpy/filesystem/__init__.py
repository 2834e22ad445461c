"""Where an archive and a pipeline keep their files: a directory, or a prefix of an object store, by URL.

A `Location` is a `Path`, or a `UrlPath` below `s3://bucket/prefix?endpoint=…&region=…` or `hdfs://host:port/path`;
`files_of` has what can be done there. Object stores are reached through `heronpy.checkpoints.open_storage`: what is
written is there whole or not at all, nothing is renamed, and the first of several that create a name has it.
`heronpy.testing.files_kit` is what both must do.
"""

from heronpy.filesystem._local import LocalFiles
from heronpy.filesystem._open import files_of, location, stored_files
from heronpy.filesystem._spi import Files, Found
from heronpy.filesystem._stored import StoredFiles
from heronpy.filesystem._url_path import Location, UrlPath

__all__ = [
    "Files",
    "Found",
    "LocalFiles",
    "Location",
    "StoredFiles",
    "UrlPath",
    "files_of",
    "location",
    "stored_files",
]
