"""The state manager in Kubernetes' own objects: ConfigMaps, and Leases for what ends with its process.

How nodes are kept is in `_kubernetes_objects`, and what a session is in `_kubernetes_session`. Here:

- Every change is a compare-and-set of one object by its resourceVersion; who was overtaken reads again.
- An answer that was lost with its connection leaves open whether the change was made. Reads decide: values that are
  compared are unique, and so the same value means the same writer.
- One thread per followed name receives the changes of its object, and no other calls its callbacks. After each end of a
  watch (the server ends them; 410: it no longer has the changes since then) it reads the object anew.
- One thread, the *keeper*, renews the session, makes nodes again after the session was lost, and removes nodes whose
  session has ended, so that their followers see it.

Reads are consistent: they name no resourceVersion, so none is answered from a stale cache. Who may read and write the
namespace's ConfigMaps can read and write the state: grant that to the topologies' service account and their owners.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from builtins import list as list_
from collections.abc import Callable, Iterator

from heronpy.errors import AlreadyExistsError, ConfigError, HeronError, StateError
from heronpy.kubernetes import Api, KubernetesError, load_access
from heronpy.statemgr._base import Kind, StateManager, check_condition, check_node
from heronpy.statemgr._kubernetes_followed import Followed
from heronpy.statemgr._kubernetes_objects import ROOT_LABEL, VALUE_BYTES_MAX, Entry, Head, digest
from heronpy.statemgr._kubernetes_session import Sessions
from heronpy.statemgr._kubernetes_store import Call, Decide, Store, Verdict, Wanted
from heronpy.statemgr._watch import Watch

log = logging.getLogger(__name__)

DEFAULT_ROOT = "/heron"
_POLL_S = 1.0
"""How often the keeper sees whether the session of an owner of a followed node is due."""
_CLOSE_S = 5.0


class KubernetesStateManager(StateManager):
    """State in the objects of one namespace."""

    def __init__(
        self,
        connection: str = "",
        root: str = DEFAULT_ROOT,
        *,
        session_timeout_s: float = 10.0,
        call_timeout_s: float = 10.0,
    ) -> None:
        """Connect: with the kubeconfig, or in a pod with its service account.

        Args:
            connection: `[CONTEXT/]NAMESPACE`: the context is the kubeconfig's (empty: its current one; a pod has none),
                the namespace is the context's, or the pod's own, when it is empty.
            root: Distinguishes trees in one namespace.
            session_timeout_s: How long ephemeral nodes outlive their silent process; rounded up to seconds.
            call_timeout_s: Longest time of any call.

        Raises:
            ConfigError: there is no kubeconfig, or it cannot be used.
            StateError: the server does not answer, or refuses.
        """
        super().__init__()
        context, _, namespace = connection.rpartition("/")
        access = load_access(context)
        self._namespace = namespace or access.namespace
        self._root = "/" + "/".join(part for part in (root or DEFAULT_ROOT).split("/") if part)
        self._call_timeout_s = call_timeout_s
        self._api = Api(access)
        self._store = Store(self._api, self._namespace, self._root)
        labels = {"app.kubernetes.io/managed-by": "heron", ROOT_LABEL: digest(self._root)}
        self._sessions = Sessions(self._api, self._namespace, labels, session_timeout_s)
        # Guards the tables; never held during a call to the server.
        self._tables = threading.Lock()
        self._owned: dict[tuple[Kind, str], bytes] = {}
        self._abandoned: set[tuple[Kind, str]] = set()  # unwanted nodes that this session may have
        self._lost: dict[tuple[Kind, str], str] = {}  # nodes to be made again, and the session that they went with
        self._followed: dict[str, Followed] = {}
        # One change of the session, or of what it owns, at a time.
        self._owning = threading.RLock()
        self._wake = threading.Event()
        self._keeper: threading.Thread | None = None
        try:
            with self._refusals(f"read namespace {self._namespace}"):
                self._store.check(Call(call_timeout_s))
        except BaseException:
            self._closed = True
            self._api.close()
            raise

    # Reading

    def get(self, kind: Kind, topology: str) -> bytes | None:
        call = self._call(kind, topology)
        with self._refusals(f"read {kind.value}/{topology}"):
            while True:
                entry = self._store.read(call, topology).entries.get(kind.value)
                if entry is None:
                    return None
                known, value = self._resolve(call, entry)
                if known:
                    return value
                call.pause(f"{topology!r}")

    def list(self, kind: Kind) -> list_[str]:
        self._check_usable()
        call = Call(self._call_timeout_s)
        with self._refusals(f"list {kind.value}"):
            found = self._store.names(call, kind.value)
            lives = {owner: self._sessions.lives(owner, call.left_s()) for owner in {o for _, o in found} if owner}
        return sorted(name for name, owner in found if lives.get(owner, True))

    def _resolve(self, call: Call, entry: Entry) -> tuple[bool, bytes | None]:
        """Whether a node's value is known, and what it is: None if its owner is gone."""
        if entry.owner and not self._sessions.lives(entry.owner, call.left_s()):
            return True, None
        value = self._store.value(call, entry)
        return value is not None, value

    # Changing

    def set(self, kind: Kind, topology: str, value: bytes) -> None:
        call = self._call(kind, topology, value)

        def decide(head: Head) -> Wanted | Verdict:
            entry = head.entries.get(kind.value)
            self._check_owner(call, kind, topology, entry)
            return Wanted(value, self._sessions.begin(call.left_s()) if own else "")

        with self._turn(kind, topology) as own:
            self._update(call, kind, topology, decide)
            self._own(kind, topology, value)

    def create(self, kind: Kind, topology: str, value: bytes, *, ephemeral: bool = False) -> None:
        call = self._call(kind, topology, value)

        def decide(head: Head) -> Wanted | Verdict:
            entry = head.entries.get(kind.value)
            if entry is not None and (not entry.owner or self._sessions.lives(entry.owner, call.left_s())):
                ours = entry.owner == (self._sessions.id if ephemeral else "")
                # After a lost answer the node may be our own: values carry ids.
                return Verdict.DONE if call.repeated and ours and entry.equals(value) else Verdict.REFUSED
            return Wanted(value, self._sessions.begin(call.left_s()) if ephemeral else "")

        with self._turn(kind, topology, always=ephemeral):
            try:
                done = self._update(call, kind, topology, decide)
            except StateError:
                if ephemeral:  # it may have been made, or be made still: the caller will not look after it
                    with self._tables:
                        self._abandoned.add((kind, topology))
                    self._start_keeper()
                raise
            if not done:
                raise AlreadyExistsError(f"{kind.value}/{topology} exists already")
            if ephemeral:
                with self._tables:
                    self._abandoned.discard((kind, topology))
                    self._owned[kind, topology] = value
                self._start_keeper()

    def set_if(
        self, kind: Kind, topology: str, value: bytes, *, expected: bytes | None, of: Kind | None = None
    ) -> bool:
        check_condition(kind, expected, of)
        call = self._call(kind, topology, value)
        compared = (of or kind).value

        def decide(head: Head) -> Wanted | Verdict:
            entry, fence = head.entries.get(kind.value), head.entries.get(compared)
            if fence is not None and fence.owner and not self._sessions.lives(fence.owner, call.left_s()):
                fence = None
            if compared == kind.value and call.repeated and fence is not None and fence.equals(value):
                return Verdict.DONE  # by our own earlier attempt, whose answer was lost: values are unique
            if (fence is not None) if expected is None else (fence is None or not fence.equals(expected)):
                return Verdict.REFUSED
            self._check_owner(call, kind, topology, entry)
            return Wanted(value, self._sessions.begin(call.left_s()) if own else "")

        with self._turn(kind, topology) as own:
            done = self._update(call, kind, topology, decide)
            if done:
                self._own(kind, topology, value)
        return done

    def delete(self, kind: Kind, topology: str) -> bool:
        call, found = self._call(kind, topology), []

        def decide(head: Head) -> Wanted | Verdict:
            entry = head.entries.get(kind.value)
            if entry is None:
                return Verdict.REFUSED
            found.append(not entry.owner or self._sessions.lives(entry.owner, call.left_s()))
            return Verdict.REMOVE

        with self._turn(kind, topology):
            with self._tables:
                self._owned.pop((kind, topology), None)
            removed = self._update(call, kind, topology, decide)
        return (removed or call.repeated) and bool(found) and found[-1]

    def _delete_own(self, kind: Kind, name: str, value: bytes) -> bool:
        call, session = self._call(kind, name), self._sessions.id

        def decide(head: Head) -> Wanted | Verdict:
            entry = head.entries.get(kind.value)
            if entry is None:
                return Verdict.DONE if call.repeated else Verdict.REFUSED
            # Who takes over writes its own: as long as it is ours, it was ours all the time.
            ours = session and entry.owner == session and entry.equals(value)
            return Verdict.REMOVE if ours else Verdict.REFUSED

        with self._turn(kind, name):
            with self._tables:
                self._owned.pop((kind, name), None)
            try:
                return self._update(call, kind, name, decide)
            except StateError:
                with self._tables:
                    self._abandoned.add((kind, name))
                self._start_keeper()
                raise

    def _update(self, call: Call, kind: Kind, name: str, decide: Decide) -> bool:
        with self._refusals(f"write {kind.value}/{name}"):
            return self._store.update(call, name, kind.value, decide)

    def _check_owner(self, call: Call, kind: Kind, name: str, entry: Entry | None) -> None:
        if entry is None or entry.owner in ("", self._sessions.id):
            return
        if self._sessions.lives(entry.owner, call.left_s()):
            raise AlreadyExistsError(
                f"{kind.value}/{name} belongs to another live process: only its owner may change it"
            )

    def _own(self, kind: Kind, name: str, value: bytes) -> None:
        with self._tables:
            if (kind, name) in self._owned:
                self._owned[kind, name] = value

    @contextlib.contextmanager
    def _turn(self, kind: Kind, name: str, *, always: bool = False) -> Iterator[bool]:
        """Change what may be an ephemeral node of this session, one thread at a time. Yields whether it is one."""
        own = (kind, name) in self._owned
        if not (own or always or kind is Kind.LOCKS):
            yield False
            return
        if not self._owning.acquire(timeout=self._call_timeout_s):
            raise StateError(f"{self._api.access.server} does not answer: another call is still waiting for it")
        try:
            yield (kind, name) in self._owned
        finally:
            self._owning.release()

    # Watching

    def watch(self, kind: Kind, topology: str, callback: Callable[[bytes | None], None]) -> Watch:
        self._call(kind, topology)
        watch = Watch(f"{kind.value}/{topology}", callback, self._wake.set)
        with self._tables:
            followed = self._followed.get(topology)
            if followed is None:
                followed = Followed(self._store, topology, self._resolve, self._call_timeout_s)
                self._followed[topology] = followed
            followed.add(kind.value, watch)
        self._start_keeper()
        return watch

    # The keeper

    def _start_keeper(self) -> None:
        with self._tables:
            if self._keeper is None and not self._closed:
                self._keeper = threading.Thread(target=self._keep, name="statemgr-kubernetes", daemon=True)
                self._keeper.start()
        self._wake.set()

    def _keep(self) -> None:
        """What makes ephemeral nodes outlive sessions, and none outlive its owner. One thread."""
        renew_s, poll_s, warned = 0.0, 0.0, ""
        while not self._closed:
            now_s = time.monotonic()
            try:
                if now_s >= renew_s:
                    self._keep_session()
                    renew_s = now_s + self._sessions.renew_s
                self._remove_abandoned()
                self._prune()
                if now_s >= poll_s:
                    self._remove_orphans()
                    poll_s = now_s + _POLL_S
                warned = ""
            except HeronError as e:
                if str(e) != warned and not self._closed:
                    log.warning("%s; trying again", e)
                warned = str(e)
            except Exception:
                # Whatever it is: without this thread the session runs out, and nothing would notice its end.
                log.exception("will try again to look after nodes in Kubernetes")
            self._wake.wait(max(0.2, min(renew_s, poll_s) - time.monotonic()))
            self._wake.clear()

    def _keep_session(self) -> None:
        with self._turn(Kind.LOCKS, "", always=True):
            lost = self._sessions.id
            if not self._sessions.renew(self._call_timeout_s):
                log.warning("the session %s has ended: it was not renewed in time", lost)
                with self._tables:
                    self._lost |= dict.fromkeys(self._owned, lost)
            for (kind, name), session in list_(self._lost.items()):
                value = self._owned.get((kind, name))
                if value is not None:  # else it was given up meanwhile
                    self._remake(kind, name, value, session)
                del self._lost[kind, name]  # only now: what fails is tried again

    def _remake(self, kind: Kind, name: str, value: bytes, lost: str) -> None:
        """Make a node again after the session was lost; a lock never in silence: somebody may have held it."""
        call = Call(self._call_timeout_s)

        def decide(head: Head) -> Wanted | Verdict:
            entry = head.entries.get(kind.value)
            if entry is None or entry.owner in (lost, self._sessions.id):
                return Wanted(value, self._sessions.begin(call.left_s()))
            return Verdict.REFUSED

        if kind is not Kind.LOCKS and self._update(call, kind, name, decide):
            log.info("%s/%s is made again in a new session", kind.value, name)
            return
        log.error("%s/%s was lost with the session", kind.value, name)
        with self._tables:
            self._owned.pop((kind, name), None)

    def _remove_abandoned(self) -> None:
        for kind, name in list_(self._abandoned):
            with self._turn(kind, name, always=True):
                if (kind, name) in self._abandoned and (kind, name) not in self._owned:
                    self._remove(kind, name, self._sessions.id)
                with self._tables:
                    self._abandoned.discard((kind, name))

    def _prune(self) -> None:
        with self._tables:
            unused = [name for name, followed in self._followed.items() if followed.prune()]
            ended = [self._followed.pop(name) for name in unused]
        for followed in ended:
            followed.stop()

    def _remove_orphans(self) -> None:
        """Remove the followed nodes whose owner is gone: that is what their followers receive."""
        with self._tables:
            followed = dict(self._followed)
        for name, one in followed.items():
            for kind, owner in one.owned().items():
                if not self._sessions.due(owner):
                    continue
                with self._refusals(f"read the session of {kind}/{name}"):
                    lives = self._sessions.lives(owner, self._call_timeout_s)
                if not lives:
                    self._remove(Kind(kind), name, owner)

    def _remove(self, kind: Kind, name: str, owner: str) -> None:
        def decide(head: Head) -> Wanted | Verdict:
            entry = head.entries.get(kind.value)
            return Verdict.REMOVE if owner and entry is not None and entry.owner == owner else Verdict.REFUSED

        self._update(Call(self._call_timeout_s), kind, name, decide)

    # Ending, and shared parts

    def _close(self) -> None:
        self._wake.set()
        with self._tables:
            followed, owned = list_(self._followed.values()), list_(self._owned)
        for one in followed:
            one.stop()
        call = Call(_CLOSE_S)
        held = self._owning.acquire(timeout=_CLOSE_S)
        session = self._sessions.id
        self._sessions.end(call.left_s())
        if held:
            self._owning.release()
        self._call_timeout_s = min(self._call_timeout_s, call.left_s())
        for kind, name in owned:
            # Gone they are, with the session; this is for their followers, who else would look a little later.
            with contextlib.suppress(HeronError):
                self._remove(kind, name, session)
        for one in followed:
            one.join()
        if self._keeper is not None and self._keeper is not threading.current_thread():
            self._keeper.join(_CLOSE_S)
        self._api.close()

    def _call(self, kind: Kind, name: str, value: bytes = b"") -> Call:
        self._check_usable()
        check_node(kind, name)
        if len(value) > VALUE_BYTES_MAX:
            raise StateError(
                f"{kind.value}/{name}: {len(value)} bytes are too many for Kubernetes, which takes {VALUE_BYTES_MAX}"
            )
        return Call(self._call_timeout_s)

    @contextlib.contextmanager
    def _refusals(self, what: str) -> Iterator[None]:
        """Errors of the client, as those of a state manager."""
        try:
            yield
        except KubernetesError as e:
            hint = ""
            if e.status == 403:
                hint = "; it needs get, list, watch, create, update and delete of configmaps and leases"
            raise StateError(f"cannot {what}: {e}{hint}") from e
        except ConfigError as e:
            if self._closed:
                raise
            raise StateError(f"cannot {what}: {e}") from e
