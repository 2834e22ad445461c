"""A driver's side of the state manager: what it is to run, and what it says."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Self

from heron_scheduler.driven._orders import DriverReport, Orders
from heronpy.errors import AlreadyExistsError, StateError
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, StateManager

log = logging.getLogger(__name__)

STANDBY_S = 1.0
GONE_S = 60.0
"""How long the state manager may know no orders before the topology counts as gone: it may be given its data again."""


class OrdersFollower:
    """What a topology's driver is to run now. A context manager: follows the node for the duration of the block."""

    def __init__(self, launch: Launch, state: StateManager, *, mends: bool = False) -> None:
        """Follow them.

        Args:
            launch: The topology.
            state: The state manager.
            mends: Write the last orders over damaged ones: for the driver, which has read them all.
        """
        self._launch, self._state, self._mends = launch, state, mends
        self._orders: Orders | None = None
        self._damaged: bytes | None = None
        """What is in the place of these orders, and makes no sense."""
        self._gone_s: float | None = None
        self._stopping = False
        self.changed = threading.Event()
        """Set when something else may be wanted."""

    def __enter__(self) -> Self:
        self._watches = (
            self._state.watch(Kind.TOMBSTONES, self._launch.topology_id, self._buried),
            self._state.watch(Kind.DRIVERORDERS, self._launch.topology, self._ordered),
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for watch in self._watches:
            watch.cancel()

    def stop(self) -> None:
        """From now on nothing is wanted. Safe in a signal handler."""
        self._stopping = True
        self.changed.set()

    def wanted(self) -> Orders | None:
        """What is to run now; None: not known yet."""
        self._restore()
        gone = self._gone_s is not None and time.monotonic() > self._gone_s + GONE_S
        if self._stopping or gone:
            return Orders(topology_id=self._launch.topology_id, stop=True)
        return self._orders

    def _restore(self) -> None:
        """Write the last orders over damaged ones; what fails is tried again."""
        damaged, orders = self._damaged, self._orders
        if damaged is None or orders is None or self._stopping or not self._mends:
            return
        try:
            self._state.set_if(Kind.DRIVERORDERS, self._launch.topology, orders.encode(), expected=damaged)
            self._damaged = None
        except StateError as e:
            log.warning("the orders are not written again yet: %s", e)

    def _buried(self, value: bytes | None) -> None:
        """The topology was killed. Called by the state manager's thread."""
        if value is not None:
            self.stop()

    def _ordered(self, value: bytes | None) -> None:
        """Called by the state manager's thread."""
        try:
            orders = None if value is None else Orders.decode(value)
        except StateError as e:
            log.error("node driverorders/%s of the state manager is damaged: %s", self._launch.topology, e)
            self._damaged = value
            self.changed.set()
            return
        self._damaged = None
        if orders is not None and orders.topology_id != self._launch.topology_id:
            orders = Orders(topology_id=self._launch.topology_id, stop=True)  # the name is another submission's
        if orders is None:
            self._gone_s = time.monotonic()
        else:
            self._orders, self._gone_s = orders, None
        self.changed.set()


class DriverSeat:
    """The node that the one driver of a topology owns: its lock, and what it reports."""

    def __init__(self, launch: Launch, state: StateManager) -> None:
        self._launch, self._state = launch, state
        self._said = b""

    def acquire(self, follower: OrdersFollower, report: DriverReport) -> bool:
        """Become the topology's driver, waiting while another one lives; False: the topology was killed meanwhile."""
        said = False
        while True:
            orders = follower.wanted()
            if orders is not None and orders.stop:
                return False
            if orders is not None:
                try:
                    self._said = report.encode()
                    self._state.create(Kind.DRIVERS, self._launch.topology, self._said, ephemeral=True)
                    return True
                except AlreadyExistsError:
                    if not said:
                        log.info("another driver of %s lives: waiting", self._launch.topology)
                    said = True
                except StateError as e:
                    log.warning("%s; trying again", e)
            time.sleep(STANDBY_S)

    def say(self, report: DriverReport) -> None:
        """Write what has changed.

        Raises:
            AlreadyExistsError: another driver has taken over while the state manager took this one for dead.
        """
        value = report.encode()
        if value == self._said:
            return
        try:
            self._state.set(Kind.DRIVERS, self._launch.topology, value)
            self._said = value
        except StateError as e:
            log.warning("%s; trying again", e)
