"""The meter: what kernels ask of memory while the interpreter runs them, stopped before it does harm.

Why not triton-viz 3.0 (read, not used): its tracer records every address array and takes a block's tensor from its
first lane, masked or not; its profiler adds bytes up over all tensors together; its sanitizer refuses tensors with
gaps ("only supports contiguously stored tensors") and proves bounds with z3, though the addresses are at hand when the
interpreter runs; none of them sees unwritten outputs, uninitialised reads or races; it imports only up to Triton 3.7
and brings flask, pyarrow, cairocffi and pre-commit. What we need is the few hundred lines here, in memory.py and in
bounds.py.

    with Meter(names={"q": q, "k": k, "v": v}) as meter:
        o = flash_forward(q, k, v)
    record = meter.finish(outputs={"o": o})
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping

import numpy as np
import torch

from flashkit.instruments import hooks
from flashkit.instruments.bounds import Access, Target, Window, along_the_block, plausible, wrapped
from flashkit.instruments.memory import KERNEL, LOADED, STORED, UNINITIALISED, Extent, Shadow
from flashkit.instruments.record import Event, Finding, MeterStop, Record
from flashkit.instruments.torch_watch import Origins, Snapshots, TorchWatch


class Meter:
    """Count and guard every memory access of the kernels launched inside the `with` block.

    names: the call's own tensors by name, so that findings say `k[0, 1, 70, 3]`; other tensors go by the name of the
    kernel's parameter. undefined: the value of masked-off lanes of a load that has no `other`, which no GPU promises
    (integers get an extreme value); None leaves the interpreter's 0.
    Raises RuntimeError on entry if Triton does not interpret, MeterStop inside a launch (see record.py).
    """

    def __init__(self, names: Mapping[str, torch.Tensor] | None = None, undefined: float | None = math.nan):
        self.record = Record(written_by_kernel=self.written_by_kernel)
        self.undefined = undefined
        self._shadows: dict[int, Shadow] = {}
        self._targets: list[Target] = []
        self._windows: list[Window] = []
        self._given: set[str] = set()
        self._events: list[tuple] = []
        self._snapshots = Snapshots()
        self._races: list[Finding] = []
        self._seen: set[tuple] = set()
        self._foreign: set[Shadow] = set()
        self._programs_before = 0
        self._ordering = False
        self._locked = False
        self._origins = Origins(self._snapshots.renew)
        for name, tensor in (names or {}).items():
            if isinstance(tensor, torch.Tensor):
                self._name(name, tensor)
                self._origins.know(tensor)
        self._torch = TorchWatch(self._allocated, self._wrote, self.record.torch_operators, self._origins)
        self._hooks = hooks.Hooks(self)

    def __enter__(self) -> Meter:
        if not hooks.interpreting():
            raise RuntimeError("the meter needs Triton's interpreter: set TRITON_INTERPRET=1 before triton is imported")
        self._torch.__enter__()
        try:
            self._hooks.open()
        except BaseException:
            self._torch.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *error) -> None:
        self._hooks.close()
        self._torch.__exit__(*error)

    # -- tensors -------------------------------------------------------------------------------------------------------

    def _shadow(self, tensor: torch.Tensor, extent: Extent) -> Shadow:
        storage = tensor.untyped_storage()
        shadow = self._shadows.get(storage.data_ptr())
        if shadow is None:
            shadow = Shadow(storage, extent)
            if storage.nbytes():
                self._shadows[storage.data_ptr()] = shadow
        shadow.add(extent)
        return shadow

    def _name(self, name: str, tensor: torch.Tensor) -> Target:
        extent = Extent.of(tensor)
        target = Target(name, self._shadow(tensor, extent), extent)
        target.shadow.named.append(target)
        self._targets.append(target)
        self._given.add(name)
        return target

    def _stand_ins(self, parameter: str, tensor: torch.Tensor) -> list[Target]:
        """The targets for an argument: the caller's named tensors it overlaps, else one by the parameter's name."""
        extent = Extent.of(tensor)
        shadow = self._shadow(tensor, extent)
        named = [t for t in shadow.named if t.extent.start < extent.end and extent.start < t.extent.end]
        same = [t for t in named if (t.extent.start, t.extent.shape) == (extent.start, extent.shape)]
        if same or named:
            return same[:1] or named
        for target in self._targets:
            if target.shadow is shadow and (target.extent.start, target.extent.end) == (extent.start, extent.end):
                return [target]
        taken = {t.name for t in self._targets}
        name, count = parameter, 1
        while name in taken:
            count += 1
            name = f"{parameter} ({count})"
        self._targets.append(Target(name, shadow, extent))
        return [self._targets[-1]]

    def _allocated(self, tensor: torch.Tensor) -> None:
        extent = Extent.of(tensor)
        self._shadow(tensor, extent).change(extent, clear=KERNEL, set=UNINITIALISED)
        self._snapshots.renew([tensor])

    def _wrote(self, tensor: torch.Tensor) -> None:
        """PyTorch wrote to a tensor: initialised from now on, and no longer a kernel's work."""
        shadow = self._shadows.get(tensor.untyped_storage().data_ptr()) if tensor.numel() else None
        if shadow is not None:
            shadow.change(Extent.of(tensor), clear=UNINITIALISED | KERNEL)
        if tensor.numel():
            self._snapshots.renew([tensor])

    def _notice_host_writes(self) -> None:
        """NumPy, ctypes and the like write past PyTorch: treat what has changed since the last look like its writes."""
        with self._quietly():
            for tensor, changed in self._snapshots.changes():
                extent = Extent.of(tensor)
                shadow = self._shadow(tensor, extent)
                self._origins.forget(tensor)
                slots = shadow.slots(extent.positions()[changed], extent.itemsize)
                shadow.flags[slots] &= np.uint8(~(UNINITIALISED | KERNEL) & 0xFF)

    @contextlib.contextmanager
    def _quietly(self):
        before, self._torch.paused = self._torch.paused, True
        try:
            yield
        finally:
            self._torch.paused = before

    # -- launches: called by the hooks ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def launch(self, kernel, args, kwargs):
        self._notice_host_writes()
        self._windows, self._locked = [], False
        self._current = hooks.describe_launch(kernel, args, kwargs)
        self.record.launches.append(self._current)
        try:
            with self._quietly():
                yield
            self._current.finished = True
        except Exception as error:
            cause = error
            while cause is not None and not isinstance(cause, MeterStop):
                cause = cause.__cause__
            if cause is None or cause is error:
                raise
            raise cause from None  # out of the interpreter's wrapping
        finally:
            self._end_launch()

    def _end_launch(self) -> None:
        if self._locked:
            self.record.locked = True
        else:
            self.record.findings += self._races
        self._races = []
        self._programs_before += max(math.prod(self._current.grid or (0,)), 0)
        number = len(self.record.launches) - 1
        with self._quietly():
            self._snapshots.renew([w.tensor for w in self._windows if w.shadow.last_store == number])
        self._windows = []

    def bind(self, tensors) -> None:
        for parameter, device, host in tensors:
            targets = self._stand_ins(parameter, device)
            base = host.untyped_storage().data_ptr()
            self._windows.append(Window(base, device, targets[0].shadow, targets))
            if not self._origins.knows(device):
                self._foreign.add(targets[0].shadow)

    def grid(self, dimensions) -> None:
        self._current.grid = tuple(int(n) for n in dimensions)

    # -- accesses: called by the hooks ---------------------------------------------------------------------------------

    def load(self, pointers, mask, other):
        """Judge a load; returns what to use as `other`."""
        access = self._judge("atomic" if self._ordering else "load", pointers, mask, reads=True)
        if other is None and not access.mask.all():
            self._note_undefined(access)
            if self.undefined is not None:
                return hooks.filled_like(pointers, self.undefined)
        return other

    def store(self, pointers, mask) -> None:
        self._judge("atomic" if self._ordering else "store", pointers, mask, reads=False)

    def atomic(self, pointers, mask, lock: bool, reads: bool) -> None:
        """A scalar integer atomic counts as a semaphore: what comes after it may be ordered by it."""
        semaphore = np.size(pointers.data) == 1 and not pointers.get_element_ty().is_floating()
        self._locked |= lock or semaphore
        self._judge("atomic", pointers, mask, reads)

    @contextlib.contextmanager
    def ordering(self):
        self._locked = self._ordering = True
        try:
            yield
        finally:
            self._ordering = False

    def _judge(self, kind, pointers, mask, reads) -> Access:
        number = len(self.record.launches) - 1
        access = Access(kind, pointers, mask, number, self._programs_before, reads)
        lanes = access.active
        if not lanes.size:
            return access
        low, high = int(lanes.min()), int(lanes.max())
        for window in self._windows:
            if window.holds_all(lanes, low, high, access.nbytes) and len(window.targets) == 1:
                self._account(access, window, window.targets[0], lanes)
                return access
        self._judge_lane_by_lane(access)
        return access

    def _judge_lane_by_lane(self, access: Access) -> None:
        """Lanes in several tensors, or outside all: nothing is accounted unless every lane is inside one."""
        left = np.ones(access.active.shape, dtype=bool)
        parts = []
        for window in self._windows:
            inside = left & window.contains(access.active, access.nbytes)
            left &= ~inside
            for target in window.targets:
                mine = inside
                if len(window.targets) > 1:
                    mine = inside & target.extent.contains(access.active - window.base, access.nbytes)
                    inside = inside & ~mine
                if mine.any():
                    parts.append((window, target, access.active[mine]))
            if len(window.targets) > 1 and inside.any():  # inside the argument, but in none of its named parts
                parts.append((window, window.targets[0], access.active[inside]))
        if left.any():
            raise self._outside(access, left)
        for window, target, lanes in parts:
            self._account(access, window, target, lanes)

    def _account(self, access: Access, window: Window, target: Target, lanes: np.ndarray) -> None:
        shadow, positions = target.shadow, lanes - window.base
        slots = shadow.slots(positions, access.nbytes)
        flags = shadow.flags[slots]
        if access.reads and (flags & UNINITIALISED).any():
            first = positions[np.argmax(flags.reshape(lanes.size, -1).max(axis=1) & UNINITIALISED)]
            self._add(access, "uninitialised", target, first, "which nothing has written since torch.empty")
        if shadow in self._foreign and access.reads and not (flags & KERNEL).all():
            self.record.foreign.setdefault(target.name, access.line.number if access.line else 0)
        self._look_for_race(access, target, positions, slots)
        if access.kind == "load":
            target.traffic.loaded += lanes.size * access.nbytes
            shadow.flags[slots] = flags | LOADED
        else:
            done = STORED | KERNEL | (LOADED if access.reads else 0)
            shadow.flags[slots] = (flags & np.uint8(~UNINITIALISED & 0xFF)) | np.uint8(done)
            shadow.last_store = access.launch
            if access.kind == "store":
                target.traffic.stored += lanes.size * access.nbytes
            else:
                target.traffic.atomic += lanes.size * access.nbytes
        self._events.append(
            (
                access.launch,
                access.program,
                target,
                access.kind,
                int(positions.min()),
                int(positions.max()),
                lanes.size * access.nbytes,
                access.line.number if access.line else None,
            )
        )

    def _look_for_race(self, access, target, positions, slots) -> None:
        """Another program of this launch at the same element, and one of the two stored without an atomic."""
        shadow, me, before = target.shadow, access.me, self._programs_before
        if shadow.last_store == access.launch or access.kind == "store":
            writers = shadow.writer[slots]
            others = (writers > before) & (writers != me)
            if others.any():
                self._add_race(access, target, positions, others, writers, "was stored to by")
        if access.kind == "store":
            readers = shadow.reader[slots]
            others = (readers > before) & (readers != me)
            if others.any():
                self._add_race(access, target, positions, others, readers, "was read or updated by")
            shadow.writer[slots] = np.where(writers > before, writers, me)
        else:
            readers = shadow.reader[slots]
            if (readers <= before).any():
                shadow.reader[slots] = np.where(readers > before, readers, me)

    # -- findings ------------------------------------------------------------------------------------------------------

    def _finding(self, access: Access, kind: str, target: Target, index, **more) -> Finding:
        line = access.line
        return Finding(
            kind=kind,
            tensor=target.name,
            index=index,
            program=access.program,
            kernel=self._current.name,
            lineno=line.number if line else None,
            line=line.text if line else "",
            filename=line.filename if line else None,
            access=access.kind,
            **more,
        )

    def _first_time(self, kind, access, target) -> bool:
        launch = access.launch if kind == "race" else None  # a locked launch drops its races, later ones must not lack
        key = (kind, target.name, launch, self._current.name, access.line)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _add(self, access, kind, target, position, tail) -> None:
        if self._first_time(kind, access, target):
            finding = self._finding(access, kind, target, target.extent.index_of(int(position)))
            finding.detail = f"program {access.program} {_VERB[access.kind]} {_spell(finding)}, {tail}."
            self.record.findings.append(finding)

    def _add_race(self, access, target, positions, others, numbers, verb) -> None:
        if not self._first_time("race", access, target):
            return
        lane = int(np.argmax(others))
        number = int(numbers[lane]) - self._programs_before - 1
        _, ny, nz = self._current.grid
        other = (number // (ny * nz), number // nz % ny, number % nz)
        place = positions[lane // (others.size // positions.size)]
        finding = self._finding(access, "race", target, target.extent.index_of(int(place)), other_program=other)
        finding.detail = (
            f"program {access.program} {_VERB[access.kind]} {_spell(finding)}, which {verb} program {other} in the "
            "same launch, and no order between the two is promised."
        )
        self._races.append(finding)

    def _note_undefined(self, access: Access) -> None:
        lane = int(np.argmin(access.mask.ravel()))
        address = int(access.block.ravel()[lane])
        if not self._windows:
            return
        near = int(access.active[0]) if access.active.size else address
        window = min(self._windows, key=lambda w: w.distance(near))
        target = window.target_at(near)
        if self._first_time("undefined", access, target):
            finding = self._finding(access, "undefined", target, target.extent.index_of(address - window.base))
            finding.detail = (
                f"program {access.program} masks lanes of a load of {target.name} without giving `other`: what they "
                "hold is undefined on a GPU."
            )
            self.record.undefined.append(finding)

    def _outside(self, access: Access, left: np.ndarray) -> MeterStop:
        """Describe the first lane outside; `left` marks the active lanes outside every argument."""
        outside = np.zeros(access.block.size, dtype=bool)
        outside[np.flatnonzero(access.mask.ravel())] = left
        lane = int(np.argmax(outside))
        address = int(access.block.ravel()[lane])
        lost = wrapped(self._windows, access.active[left], access.nbytes)
        window = lost[0] if lost else plausible(self._windows, access, left, address)
        if window is None:
            target, index = Target("no tensor", None, Extent(0, (), (), access.nbytes)), ()
        else:
            address += lost[1] if lost else 0
            target = window.target_at(address)
            index = None if lost else along_the_block(access, outside, lane, window, target)
            index = index or target.extent.index_of(address - window.base)
        finding = self._finding(access, "outside", target, index, overflow=bool(lost))
        shape = f"whose shape is {target.extent.shape}" if window is not None else "and the launch has no tensors"
        if window is not None and all(0 <= i < n for i, n in zip(index, target.extent.shape, strict=True)):
            shape = f"reached with strides that are not its own: they are {target.extent.strides}"
        finding.detail = f"program {access.program} {_VERB[access.kind]} {_spell(finding)}, {shape}."
        if lost:
            finding.detail = (
                f"program {access.program} means {_spell(finding)}, but the offset passed 2**31, wrapped round and "
                "points far outside: compute it in int64."
            )
        self.record.findings.append(finding)
        return MeterStop(finding)

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self, outputs: Mapping[str, torch.Tensor] | None = None) -> Record:
        """Complete the record: outputs get their names, elements never stored to are findings, bytes are summed."""
        self._notice_host_writes()
        outputs = {k: t for k, t in (outputs or {}).items() if isinstance(t, torch.Tensor)}
        storages = [t.untyped_storage().data_ptr() for t in outputs.values()]
        for (name, tensor), storage in zip(outputs.items(), storages, strict=True):
            self._finish_output(name, tensor, alone=storages.count(storage) == 1)
        traffic = self.record.traffic
        traffic.clear()
        for target in self._targets:
            flags = target.shadow.flags_of(target.extent)
            target.traffic.distinct_loaded = int(((flags & LOADED) != 0).sum()) * target.extent.itemsize
            target.traffic.distinct_stored = int(((flags & STORED) != 0).sum()) * target.extent.itemsize
            traffic[target.name] = target.traffic
        self.record.events = [self._event(*event) for event in self._events]
        return self.record

    def _event(self, launch, program, target, kind, low, high, nbytes, lineno) -> Event:
        axis = 2 if len(target.extent.shape) > 2 else 0
        first, last = (target.extent.index_of(p) or (0,) for p in (low, high))
        axis = axis if target.extent.shape else 0
        return Event(launch, program, target.name, kind, first[axis], last[axis], nbytes, lineno, tuple(first))

    def _finish_output(self, name: str, tensor: torch.Tensor, alone: bool) -> None:
        extent = Extent.of(tensor)
        shadow = self._shadow(tensor, extent)
        if not shadow.named:
            self._rename(name, shadow, extent, alone)
        flags = shadow.flags_of(extent)
        missing = (flags & STORED) == 0
        if missing.any():
            index = tuple(int(i) for i in np.unravel_index(int(np.argmax(missing)), extent.shape))
            finding = Finding("unwritten", name, index)
            left = "what torch.empty left" if flags[index] & UNINITIALISED else "what PyTorch put there"
            finding.detail = (
                f"no kernel stored to {_spell(finding)}: {int(missing.sum())} of {missing.size} elements of {name} "
                f"hold {left}."
            )
            self.record.findings.append(finding)

    def _rename(self, name: str, shadow: Shadow, extent: Extent, alone: bool) -> None:
        """Call what kernels knew by a parameter's name by the output's name, in the output's coordinates.

        An output that shares its storage with another takes over only the arguments that lie within it.
        """
        mine = [
            t
            for t in self._targets
            if t.shadow is shadow and (alone or (t.extent.start >= extent.start and t.extent.end <= extent.end))
        ]
        whole = Target(name, shadow, extent)
        for target in mine:
            for finding in self.record.findings + self.record.undefined:
                if finding.tensor == target.name and finding.kind != "unwritten":
                    _restate(finding, target, whole)
            for part in ("loaded", "stored", "atomic"):
                setattr(whole.traffic, part, getattr(whole.traffic, part) + getattr(target.traffic, part))
            self._targets.remove(target)
        self._events = [(*e[:2], whole if e[2] in mine else e[2], *e[3:]) for e in self._events]
        self._targets.append(whole)

    def written_by_kernel(self, tensor: torch.Tensor) -> np.ndarray:
        """Bool array of the tensor's shape: True where the last write was a metered store or atomic."""
        self._notice_host_writes()
        extent = Extent.of(tensor)
        shadow = self._shadows.get(tensor.untyped_storage().data_ptr()) if extent.size else None
        if shadow is None:
            return np.zeros(extent.shape, dtype=bool)
        return shadow.written_by_kernel(extent)


_VERB = {"load": "loads", "store": "stores to", "atomic": "updates"}


def _spell(finding: Finding) -> str:
    return f"{finding.tensor}[{', '.join(map(str, finding.index))}]" if finding.index else finding.tensor


def _restate(finding: Finding, old: Target, new: Target) -> None:
    """Put a finding into another tensor's name and coordinates of the same storage."""
    before = _spell(finding)
    if old.extent.shape != new.extent.shape or old.extent.strides != new.extent.strides:
        steps = sum(i * s for i, s in zip(finding.index, old.extent.strides, strict=True))
        finding.index = new.extent.index_of(old.extent.start + steps * old.extent.itemsize)
    finding.tensor = new.name
    finding.detail = finding.detail.replace(before, _spell(finding)).replace(f"of {old.name} ", f"of {new.name} ")
