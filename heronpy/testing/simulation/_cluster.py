"""A simulated cluster: containers, a state manager, Topology Masters, links; dead processes are started again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from heronpy.errors import StateError
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PackingPlan, PhysicalPlan
from heronpy.proto import plan_pb2
from heronpy.statemgr import Kind
from heronpy.testing.simulation._counting_node import CountingNode
from heronpy.testing.simulation._instance_node import InstanceNode
from heronpy.testing.simulation._loop import Loop, Process
from heronpy.testing.simulation._network import Network
from heronpy.testing.simulation._programs import Broken, Ledger
from heronpy.testing.simulation._replaying_node import ReplayingNode
from heronpy.testing.simulation._setup import Setup
from heronpy.testing.simulation._state_store import MemoryStateManager, MemoryStore
from heronpy.testing.simulation._stmgr_node import StmgrNode
from heronpy.testing.simulation._storage import Storage
from heronpy.testing.simulation._tmaster_node import TmasterNode

NAME = "simulated"
START_S = 1.0
_CLOCK_BEHIND_NS = 3_600 * 10**9
"""How far the clock of the next host is behind."""


@dataclass
class _Service:
    """A process that is started again when it is dead."""

    start: Callable[[Process], None]
    host: str
    on_data_path: bool
    process: Process | None = None
    incarnations: int = 0
    wanted: bool = True
    """Whether its executor has it in the packing plan."""


@dataclass
class Cluster:
    """A running cluster."""

    seed: int
    setup: Setup
    check_every: int = 1
    """After how many steps of a process the invariants of its core are checked."""
    plan_contents: dict[int, bytes] = field(default_factory=dict)
    """Every plan that a Topology Master has sent, by version."""

    def __post_init__(self) -> None:
        setup = self.setup
        self.loop = loop = Loop(self.seed)
        self.network = Network(loop, delay_s=setup.delay_s, buffer_bytes=setup.network_buffer_bytes)
        self.store = MemoryStore()
        self.ledger = Ledger(setup.kind, rate=setup.rate, fail_share=setup.fail_share, burst_s=setup.burst_s)
        self._proto, self.packing = setup.topology()
        sources = [i.task_id for c in self.packing.containers for i in c.instances if i.component == "source"]
        self.storage = Storage(setup.kind, sorted(sources), at_least_once=setup.at_least_once)
        self._submit()
        self.services: dict[str, _Service] = {}
        self.sessions: dict[str, MemoryStateManager] = {}
        self._copies: dict[str, dict[Kind, bytes]] = {}
        self.tmasters: dict[str, TmasterNode] = {}
        self.stmgrs: dict[str, StmgrNode] = {}
        self.instances: dict[str, InstanceNode] = {}
        self.counting: dict[str, CountingNode] = {}
        """With checkpoints, in the place of `instances`."""
        self._rng = loop.rng("executors")
        self._held: dict[str, int] = {}
        self.data_path_s = START_S
        """When something last happened to a process or a link on the path of the data."""
        self._algorithm = RoundRobinPacking(LogicalPlan.from_proto(self._proto))
        self._executors = MemoryStateManager(self.store, lambda call: loop.after(self._rng.random() * 0.02, call))
        for number in range(1 + setup.standby):
            self._want(f"tmaster-{number}", self._tmaster(number), f"host-tmaster-{number}", on_data_path=False)
        self._next: PackingPlan | None = None
        self._run_packing(self.packing)
        self._executors.watch(Kind.PACKINGPLANS, NAME, self._packing_changed)
        self._executors.watch(Kind.NEXTPACKINGPLANS, NAME, self._next_changed)
        self.ledger.emitting_since_s = START_S

    def _submit(self) -> None:
        with MemoryStateManager(self.store) as state:
            state.set(Kind.TOPOLOGIES, NAME, self._proto.SerializeToString())
            state.set(Kind.PACKINGPLANS, NAME, self.packing.to_proto().SerializeToString())

    # executors

    def _packing_changed(self, value: bytes | None) -> None:
        if value is not None:
            self._run_packing(PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(value)))

    def _next_changed(self, value: bytes | None) -> None:
        self._next = PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(value)) if value else None
        self._run_packing(self.packing)

    def _run_packing(self, packing: PackingPlan) -> None:
        """Start what is new in a plan and end what is no longer in it, each at a time of its own."""
        self.packing = packing
        packing = packing if self._next is None else packing.joined(self._next)
        wanted = {name for name in self.services if name.startswith("tmaster")}
        for container in packing.containers:
            host = f"host-{container.id}"
            wanted.add(container.stmgr_id)
            self._want(container.stmgr_id, self._stmgr(container.id), host)
            for instance in container.instances:
                wanted.add(name := instance.instance_id(container.id))
                self._want(name, self._instance(container.id, instance.task_id, instance.component), host)
        for name in self.services.keys() - wanted:
            self.services[name].wanted = False
        for name in sorted(self.services.keys() - wanted):
            self.loop.after(self._rng.random() * 0.3, lambda name=name: self._end(name))  # type: ignore[misc]  # the loop's variable

    def _want(self, name: str, start: Callable[[Process], None], host: str, *, on_data_path: bool = True) -> None:
        service = self.services.get(name)
        if service is None:
            service = self.services[name] = _Service(start, host, on_data_path)
        elif service.wanted:
            return
        service.wanted = True
        self.loop.after(self._rng.random() * 0.3, lambda: self._start(name))

    def _end(self, name: str) -> None:
        service = self.services[name]
        if not service.wanted and service.process is not None:
            self.data_path_s = self.loop.now_s
            service.process.die()
            self.stmgrs.pop(name, None)
            self.instances.pop(name, None)

    def scale(self, component: str, to: int) -> bool:
        """Have the topology run with another parallelism. False if the state manager is out of reach."""
        now = sum(i.component == component for c in self.packing.containers for i in c.instances)
        try:
            if now and to != now:
                packing = self._algorithm.repack(self.packing, {component: to - now})
                self._executors.set(Kind.PACKINGPLANS, NAME, packing.to_proto().SerializeToString())
        except StateError:
            return False
        return True

    def request_scale(self, call: int, component: str, to: int) -> list[TmasterNode] | None:
        """Ask for another parallelism. Returns who was asked; None: it is so already, or the component is not there."""
        try:
            value = self._executors.get(Kind.PACKINGPLANS, NAME)
        except StateError:
            value = None
        if value is None:
            return []
        base = PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(value))
        if (now := base.parallelism.get(component, 0)) in (0, to):
            return None
        packing = self._algorithm.repack(base, {component: to - now})
        return [tmaster for tmaster in self.active_tmasters() if tmaster.update(call, base, packing)]

    # processes

    def _state(self, process: Process) -> MemoryStateManager:
        rng = self.loop.rng(f"state {process.name} {process.incarnation}")
        state = MemoryStateManager(self.store, lambda call: process.after(rng.random() * 0.02, call))
        timeout_s = self.setup.session_timeout_s

        def stopped() -> None:
            if timeout_s:
                self.loop.after(timeout_s, lambda: state.expire() if process.stopped else None)

        process.on_death.append(lambda: self.loop.after(timeout_s, state.close))
        process.on_stop.append(stopped)
        process.on_continue.append(lambda: self.renew(state))
        self.sessions[process.name] = state
        return state

    def renew(self, state: MemoryStateManager) -> None:
        """Give a process a session again, if the state manager is in reach."""
        if not self.store.away:
            state.renew()

    def _tmaster(self, number: int) -> Callable[[Process], None]:
        def start(process: Process) -> None:
            self.tmasters[process.name] = TmasterNode(
                process,
                self.network,
                self._state(process),
                container=number,
                topology=NAME,
                topology_id=self._proto.id,
                stmgr_timeout_s=5.0,
                copies=self._copies.setdefault(process.name, {}),
                plan_sent=self._plan_sent,
                storage=self.storage,
            )

        return start

    def _stmgr(self, container: int) -> Callable[[Process], None]:
        def start(process: Process) -> None:
            self.stmgrs[process.name] = StmgrNode(
                process,
                self.network,
                self._state(process),
                container=container,
                topology=NAME,
                topology_id=self._proto.id,
                config=self.setup.stmgr_config(),
                instance=self.setup.instance_config(),
            )

        return start

    def _instance(self, container: int, task_id: int, component: str) -> Callable[[Process], None]:
        cost_s = self.setup.sink_cost_s if component == "sink" else 0.0

        def start_counting(process: Process) -> None:
            kind = ReplayingNode if self.setup.at_least_once else CountingNode
            self.counting[process.name] = kind(
                process,
                self.network,
                container=container,
                task_id=task_id,
                component=component,
                storage=self.storage,
                ledger=self.ledger,
                cost_s=cost_s,
            )

        def start(process: Process) -> None:
            self.instances[process.name] = InstanceNode(
                process,
                self.network,
                container=container,
                task_id=task_id,
                config=self.setup.instance_config(),
                ledger=self.ledger,
                cost_s=cost_s,
            )

        return start_counting if self.setup.checkpoints else start

    def _start(self, name: str) -> None:
        service = self.services[name]
        if not service.wanted or (service.process is not None and service.process.alive):
            return
        if self._held.get(name):
            return
        service.incarnations += 1
        process = service.process = Process(self.loop, name, service.incarnations, check_every=self.check_every)
        process.on_death.append(lambda: self._died(name))
        if service.on_data_path:
            self.data_path_s = self.loop.now_s
        service.start(process)

    def replace(self, container: int) -> Process | None:
        """Start a container again that has stopped. Returns the old Stream Manager; None if there is none."""
        service = self.services.get(f"stmgr-{container}")
        if service is None or service.process is None or not service.process.alive or not service.wanted:
            return None
        old = service.process
        old.stop()
        for name in self.matching(f"container_{container}"):
            process = self.services[name].process
            if process is not None and process is not old:
                process.die()
        self.data_path_s = self.loop.now_s
        service.incarnations += 1
        new = service.process = Process(self.loop, old.name, service.incarnations, check_every=self.check_every)
        new.clock_ns = old.clock_ns - _CLOCK_BEHIND_NS
        new.on_death.append(lambda: self._died(old.name))
        service.start(new)
        return old

    def _died(self, name: str) -> None:
        """Its executor starts it again, unless a fault keeps it down for longer."""
        if not self._held.get(name):
            self.loop.after(0.05 + self._rng.random() * 0.5, lambda: self._start(name))

    def _plan_sent(self, plan: PhysicalPlan) -> None:
        content = plan.to_proto().SerializeToString(deterministic=True)
        if self.plan_contents.setdefault(plan.version, content) != content:
            raise Broken(f"plan {plan.version} was sent with two contents")

    # what faults do to processes

    @property
    def was_read(self) -> bool:
        """Whether some Topology Master has read back what the state manager has."""
        return any(self._copies.values())

    def matching(self, process: str) -> list[str]:
        """Names of the processes that a fault names: one, or all of `container_<n>`."""
        if process.startswith("container_") and process.count("_") == 1:
            host = f"host-{process.removeprefix('container_')}"
            return [name for name, service in self.services.items() if service.host == host]
        return [process] if process in self.services else []

    def active_tmasters(self) -> list[TmasterNode]:
        """Topology Masters that run; those that are not the active one refuse by themselves."""
        return [node for node in self.tmasters.values() if node.process.alive and not node.process.stopped]

    def kill(self, name: str) -> Callable[[], None]:
        """Kill a process, and keep it down until what is returned is called."""
        service = self.services[name]
        self._held[name] = self._held.get(name, 0) + 1
        if service.process is not None:
            service.process.die()

        def released() -> None:
            self._held[name] -= 1
            self._start(name)

        return released
