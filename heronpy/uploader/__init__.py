"""Packages: how the user's code comes from where it is submitted to the hosts that run it.

    archive = pack(launch.dir / "package", scratch / "package.tar.gz")   # the same files make the same bytes
    with open_uploader("s3://bucket/heron") as uploader:
        ref = uploader.store(archive, topology_id=launch.topology_id)    # stored once, however many topologies use it
    …
    fetch(ref, directory / "package")                                    # on the host: verified, then unpacked
    …
    remove(ref, topology_id=launch.topology_id)                          # at kill; the last user deletes it

A package is content-addressed: its name is its SHA-256. What is fetched is compared with the size and the SHA-256 of
its reference before anything of it is unpacked. Unpacking trusts nothing all the same: there are only regular files and
directories, all below the target, and not too many of them; the target is there whole, or not at all.

Packages are kept where checkpoints can be, too (`heronpy.checkpoints.open_storage`): a directory, local or shared, S3
and what speaks its protocol, HDFS. `heronpy.testing.uploader_kit` is what an uploader must do; one of your own is an
entry point of the group `heron.uploaders`, named after the scheme of its URLs.
"""

from heronpy.uploader._archive import BYTES_MAX, FILES_MAX, pack, unpack
from heronpy.uploader._spi import PackageRef, Uploader, fetch, open_uploader, remove
from heronpy.uploader._stored import StoredUploader

__all__ = [
    "BYTES_MAX",
    "FILES_MAX",
    "PackageRef",
    "StoredUploader",
    "Uploader",
    "fetch",
    "open_uploader",
    "pack",
    "remove",
    "unpack",
]
