"""The bolts of stages that begin with anything but a window, a store or an archive; and what all bolts share.

A tuple is acked when what came of it was emitted (anchored to it), and every sink of the stage was flushed since.
Effectively once it is acked as soon as it is processed: what is remembered of it is state, and sinks commit with the
checkpoints. At least once with checkpoints what is remembered is state, too, and sinks are flushed before a snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from heronpy.api import (
    Bolt,
    ITwoPhaseStatefulComponent,
    State,
    TopologyContext,
    TopologyReliabilityMode,
    Tuple,
    api_constants,
)
from heronpy.config import takes_checkpoints
from heronpy.errors import TupleError, UnavailableError
from heronpy.hashing import KEY_GROUPS, index_of_group, key_group
from heronpy.streamlet._definition import loads
from heronpy.streamlet._stages import Exit
from heronpy.streamlet._task import StageTask, now_ms
from heronpy.streamlet.bootstrap import read_cut, read_states
from heronpy.streamlet.chain import after, directed, from_bolt, node
from heronpy.streamlet.graph import ELEMENTWISE, ReduceByKeyNode
from heronpy.streamlet.operators import Put
from heronpy.windows import Upstream

WAIT_S = 0.1
"""How long a stage takes for a tuple while nothing can be committed."""


class StageBolt(Bolt, ITwoPhaseStatefulComponent):
    """One task of a stage that reads from other stages. Subclasses say what is done with a tuple."""

    commit_every_ms = 1000
    commit_tuples = 10_000
    _state_of_operators: State | None = None

    def init_state(self, state: State) -> None:
        self._state_of_operators = state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        definition = loads(config)
        self.definition, self.stage = definition, definition.stage
        self.tracking = config.get(api_constants.TOPOLOGY_RELIABILITY_MODE) == TopologyReliabilityMode.ATLEAST_ONCE
        self.task = StageTask(definition, context, self.logger, self._state_of_operators)
        self.exact = self.task.exact
        self.task.exit_of = self._exit_of
        self.place = self.task.place
        self.upstream = Upstream(self._upstream_tasks())
        self._held: list[Tuple] = []
        self._commit_at_ms = now_ms() + self.commit_every_ms
        self.put: Put = self._compiled()
        self.commits = bool(self.task.writers)
        """Whether tuples wait for a commit before they are acked."""
        self.set_up()
        self.away = False
        """Whether the last commit found what it writes to out of reach."""
        self.done: Callable[[Tuple], None] = self.ack
        """Call it for each tuple of which everything was emitted."""
        if self.commits:
            self.done = self._ack_and_wait if self.exact else self._hold
        self.process = self.taker()  # type: ignore[method-assign,assignment]  # a closure: the engine asks for it once a batch

    def set_up(self) -> None:
        """Open what the stage needs. May set `commits`."""

    def taker(self) -> Callable[[Tuple], None]:
        """What is done with a tuple of elements."""
        raise NotImplementedError

    def watermark(self) -> int:
        """The watermark of what the head of the stage emits."""
        return self.upstream.low

    def flush(self) -> None:
        """Make durable what the head of the stage holds.

        Raises:
            UnavailableError: not now; nothing is lost.
        """

    def pre_save(self, checkpoint_id: str) -> None:
        """Make durable what is held, and prepare what sinks were given: no rollback behind this brings it again."""
        if self.exact:
            self.flush()
            self.task.prepare(int(checkpoint_id))
        elif self.commits:
            self.commit_now()

    def post_save(self, checkpoint_id: str) -> None:
        self.task.commit(int(checkpoint_id))

    def pre_restore(self, checkpoint_id: str) -> None:
        self.task.abort(int(checkpoint_id))

    def failed(self, element: Any, error: Exception) -> None:
        """User code of the head raised on an element."""
        self.task.failed(self.stage.name, element, error)

    def process_tick(self, tup: Tuple) -> None:
        if self.commits and now_ms() >= self._commit_at_ms:
            self.commit()
        self.send_watermark()

    def send_watermark(self) -> None:
        """Send the stages after this one how far event time has come, if it is time to."""
        watermark = self.task.watermark_due(self.watermark())
        if watermark is not None:
            self.delegate.send_watermark(watermark)

    def receive_watermark(self, task: int, watermark: int) -> None:
        """Take the watermark of a task before this stage; called by the engine."""
        if self.stage.watermarks_in:
            self.upstream.follow(self._upstream_tasks())  # an update may have added and removed some
            if task in self.upstream:
                self.upstream.mark(task, watermark)
                self.watermark_came()

    def _upstream_tasks(self) -> list[int]:
        tasks_of = self.task.context.get_component_tasks
        return [task for component in self.stage.upstream for task in tasks_of(component) or ()]

    def watermark_came(self) -> None:
        """Event time may have advanced."""
        self.send_watermark()

    def commit(self) -> None:
        """Make durable what is held, then ack it."""
        self._commit_at_ms = now_ms() + self.commit_every_ms
        try:
            self.commit_now()
            self.away = False
        except UnavailableError as error:
            self.away = True
            self.logger.warning("%s; %d tuples wait", error, len(self._held))

    def commit_now(self) -> None:
        """The same, but an outage is an error.

        Raises:
            UnavailableError: nothing is lost, and nothing acked.
        """
        for writer in self.task.writers:
            writer.flush()
        self.flush()
        ack = self.ack
        for tup in self._held:
            ack(tup)
        self._held.clear()

    def cleanup(self) -> None:
        if self.commits:
            self.commit()
        self.task.close()

    def _hold(self, tup: Tuple) -> None:
        self._held.append(tup)
        if len(self._held) % self.commit_tuples == 0:
            self.commit()
        if self.away:
            self._wait()

    def _ack_and_wait(self, tup: Tuple) -> None:
        self.ack(tup)
        if self.away:
            self._wait()

    def _wait(self) -> None:
        """Take time for a tuple while nothing can be committed: the queue before this task fills, and throttles spouts.

        What is taken would only wait here, and come again each time that its timeout is over.
        """
        if now_ms() >= self._commit_at_ms:
            self.commit()
        if self.away:
            time.sleep(WAIT_S)

    def _compiled(self) -> Put:
        return after(self.stage.head, self.task)

    def _exit_of(self, exit: Exit) -> Put:
        task = self.task
        if exit.direct is None:
            return from_bolt(exit, self.emit, task.place, task.failed)
        place, emit, stream = task.place, self.emit, exit.stream

        def send(values: tuple[Any, ...], task_id: int) -> None:
            emit(values, stream, place.anchors, task_id)

        return directed(exit, send, task.context.get_component_tasks(exit.consumer) or [], place, task.failed)


class PassBolt(StageBolt):
    """Element-wise nodes, unions and repartitions."""

    def _compiled(self) -> Put:
        head = self.stage.head
        return node(head, self.task) if isinstance(head.node, ELEMENTWISE) else after(head, self.task)

    def taker(self) -> Callable[[Tuple], None]:
        place, put, done = self.place, self.put, self.done
        times, ids = self.stage.times_in, self.stage.ids_in

        def take(tup: Tuple) -> None:
            place.anchors = [tup]
            put(tup.values[0])
            done(tup)

        def take_timed(tup: Tuple) -> None:
            values = tup.values
            place.time_ms = values[1]
            if ids:
                place.id = values[2]
            place.anchors = [tup]
            put(values[0])
            done(tup)

        return take_timed if times else take


class ReduceByKeyBolt(StageBolt):
    """The value so far of each key that comes to this task. With checkpoints it is state.

    Otherwise it is lost with the process, but for what a batch job wrote.
    """

    @property
    def _node(self) -> ReduceByKeyNode:
        node = self.stage.head.node
        assert isinstance(node, ReduceByKeyNode)
        return node

    def set_up(self) -> None:
        context, directory = self.task.context, self.definition.directory
        self._values: MutableMapping[Any, Any] = context.keyed_state("values") if self.task.saved else {}
        self._cut: int | None = None
        if directory is None:
            return
        # What the batch job has left is begun with, not gone on with: its cut goes with the values.
        begun = context.task_state("bootstrapped", merge=_first, split=_for_each) if self.task.saved else None
        if begun is not None and begun.value is not None:
            (self._cut,) = begun.value
            return
        self._cut = read_cut(directory)
        mine, place = KeyShare(context), self._node.place
        self._values.update(pair for pair in read_states(directory, self.stage.name, place) if mine(pair[0]))
        if begun is not None:
            begun.value = (self._cut,)

    def taker(self) -> Callable[[Tuple], None]:
        reduce = self._reducer()
        place, times, cut = self.place, self.stage.times_in, self._cut

        def take(tup: Tuple) -> None:
            values = tup.values
            if times:
                place.time_ms = values[2]
                if cut is not None and values[2] < cut:
                    self.done(tup)
                    return
            place.anchors = [tup]
            reduce(values[0], values[1])
            self.done(tup)

        return take

    def _reducer(self) -> Callable[[Any, Any], None]:
        values, function, put, nothing = self._values, self._node.function, self.put, object()
        get = values.get

        def reduce(key: Any, value: Any) -> None:
            try:
                so_far = get(key, nothing)
                made = values[key] = value if so_far is nothing else function(so_far, value)
            except Exception as error:
                self.failed((key, value), error)
                return
            put((key, made))

        return reduce


def _first(values: Sequence[Any]) -> Any:
    return values[0]


def _for_each(value: Any, tasks: int) -> list[Any]:
    return [value] * tasks


class KeyShare:
    """Which keys a fields grouping sends to this task."""

    def __init__(self, context: TopologyContext) -> None:
        tasks = context.get_component_tasks(context.get_component_id()) or []
        self._count = len(tasks)
        self._index = tasks.index(context.get_task_id())
        config = context.get_cluster_config()
        self._groups = int(config.get(api_constants.TOPOLOGY_STATE_KEY_GROUPS, KEY_GROUPS))
        self._lasting = takes_checkpoints(config)

    def __call__(self, key: Any) -> bool:
        try:
            group = key_group(key, self._groups, lasting=self._lasting)
        except TupleError:
            return False  # no such key can come
        return index_of_group(group, self._count, self._groups) == self._index


__all__ = ["KeyShare", "PassBolt", "ReduceByKeyBolt", "StageBolt"]
