"""Topologies that log and print. A module of its own, because every instance imports it."""

from __future__ import annotations

import logging
import time
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, Topology, TopologyContext, Tuple

LINES = 20_000
log = logging.getLogger("of.the.user")
quiet = logging.getLogger("of.the.user.quiet")


class Ticking(Spout):
    """Emits twenty times a second, and logs at every level."""

    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.number = 0
        quiet.setLevel(logging.ERROR)

    def next_tuple(self) -> None:
        time.sleep(0.05)
        self.number += 1
        self.emit([self.number])
        self.logger.debug("own debug %d", self.number)
        self.logger.info("own info %d", self.number)
        log.debug("user debug %d", self.number)
        quiet.info("quiet info %d", self.number)


class Blocking(Bolt):
    """Blocks in user code from its first tuple on, while another thread goes on logging."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        import threading

        threading.Thread(target=self._talk, daemon=True).start()

    def _talk(self) -> None:
        while True:
            log.debug("user debug beside the block")
            time.sleep(0.05)

    def process(self, tup: Tuple) -> None:
        self.logger.info("blocks")
        time.sleep(3600)


class Levels(Topology):
    config = {"topology.stmgrs": 1}  # noqa: RUF012  # Heron's way to declare
    ticking = Ticking.spec(par=1)
    blocking = Blocking.spec(par=1, inputs={ticking: Grouping.SHUFFLE})


class Chatting(Spout):
    """Logs and prints `LINES` numbered lines as fast as it can."""

    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        if self.number < LINES:
            for _ in range(100):
                self.number += 1
                self.logger.info("line %d says \u201chello\u201d\nand more", self.number)
                print(f"printed {self.number}", flush=True)
            try:
                raise ValueError(f"number {self.number}")
            except ValueError:
                self.logger.exception("failed with %s", "\udc80")


class Chat(Topology):
    config = {"topology.stmgrs": 1}  # noqa: RUF012  # Heron's way to declare
    chatting = Chatting.spec(par=1)
