"""A program that has a secret: it says which one by a digest, and raises with the text of it."""

from __future__ import annotations

from pathlib import Path

_PROGRAM = """
import hashlib, logging, os, time
from pathlib import Path
from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder

DIRECTORY = Path({directory!r})


class Numbers(Spout):
    outputs = ("number",)

    def initialize(self, config, context):
        secret = context.get_secret("db")
        assert config["my.url"] == "x://ada:" + secret + "@h"
        logging.getLogger("numbers").info("the password is %s", secret)
        (DIRECTORY / "digest.tmp").write_text(hashlib.sha256(secret.encode()).hexdigest())
        os.replace(DIRECTORY / "digest.tmp", DIRECTORY / "digest")

    def next_tuple(self):
        time.sleep(0.05)
        self.emit([1])


class Connect(Bolt):
    def initialize(self, config, context):
        self.secret = context.get_secret("db")

    def process(self, tup):
        raise ConnectionError("cannot connect with " + self.secret)


builder = TopologyBuilder("secretive")
numbers = builder.add_spout("numbers", Numbers, 1)
builder.add_bolt("connect", Connect, 1, {{numbers: Grouping.SHUFFLE}}, config={{"topology.exception.policy": "fail"}})
builder.set_config({{"my.url": "x://ada:${{secret:db}}@h", "topology.reliability.mode": "ATLEAST_ONCE"}})
builder.build_and_submit()
"""


def secret_program(directory: Path) -> Path:
    path = directory / "secretive.py"
    path.write_text(_PROGRAM.format(directory=str(directory)))
    return path
