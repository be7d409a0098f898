"""Where a strided tensor's logical elements lie in its storage, and what has happened to each of them.

Positions are bytes from the start of a storage, so that a tensor on a device and the interpreter's host copy of it
share one description.
"""

from __future__ import annotations

import numpy as np

UNINITIALISED, KERNEL, LOADED, STORED = 1, 2, 4, 8  # bits of Shadow.flags; KERNEL: the *last* write was a kernel's

DENSE_LIMIT = 64 << 20  # bytes of storage above which a shadow keeps only the elements that tensors can name


class Extent:
    """The logical elements of one strided tensor. Padding between rows or heads is not inside."""

    def __init__(self, start: int, shape, strides, itemsize: int):
        self.start, self.shape, self.strides, self.itemsize = start, tuple(shape), tuple(strides), itemsize
        self.size = int(np.prod(self.shape, dtype=np.int64))
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)) if self.size else -1
        self.end = start + (last + 1) * itemsize
        self.axes = _merged_axes(self.shape, self.strides)
        self.solid = bool(self.size) and (not self.axes or (len(self.axes) == 1 and self.axes[0][1] == 1))
        spans = [(n - 1) * s for n, s in self.axes]
        self._separable = all(s > sum(spans[i + 1 :]) for i, (_, s) in enumerate(self.axes))
        self._sorted = None

    @classmethod
    def of(cls, tensor) -> Extent:
        """The extent of a torch tensor inside its storage."""
        itemsize = tensor.element_size()
        return cls(tensor.storage_offset() * itemsize, tensor.shape, tensor.stride(), itemsize)

    def positions(self) -> np.ndarray:
        """Byte position of every logical element, in the tensor's shape (int64)."""
        total = np.full(self.shape, self.start, dtype=np.int64)
        for axis, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            steps = np.arange(n, dtype=np.int64) * (stride * self.itemsize)
            total += steps.reshape([-1 if i == axis else 1 for i in range(len(self.shape))])
        return total

    def contains(self, positions: np.ndarray, nbytes: int) -> np.ndarray:
        """For each access of `nbytes` bytes at `positions`: do all its bytes belong to logical elements?"""
        inside = (positions >= self.start) & (positions + nbytes <= self.end)
        if self.solid or not inside.any():
            return inside
        relative = positions - self.start
        shift = self.itemsize.bit_length() - 1
        ok = self._are_elements(relative >> shift)
        if nbytes != self.itemsize or (relative & (self.itemsize - 1)).any():
            for extra in [*range(self.itemsize, nbytes, self.itemsize), nbytes - 1]:
                ok &= self._are_elements((relative + extra) >> shift)
        return inside & ok

    def _are_elements(self, offsets: np.ndarray) -> np.ndarray:
        """Which element offsets (from the start) are logical elements? Peels the axes off, slowest first."""
        if not self._separable:  # overlapping windows (as_strided): no unique coordinates, so look the offset up
            if self._sorted is None:
                self._sorted = np.unique((self.positions() - self.start) // self.itemsize)
            found = np.searchsorted(self._sorted, offsets).clip(max=self._sorted.size - 1)
            return self._sorted[found] == offsets
        rest, ok = offsets, np.ones(offsets.shape, dtype=bool)
        for n, stride in self.axes:
            index = rest // stride if stride > 1 else rest
            ok &= (index >= 0) & (index < n)
            rest = rest - index * stride
        return ok & (rest == 0)

    def index_of(self, position: int) -> tuple[int, ...]:
        """Coordinates of a byte position, in the tensor's own axes.

        Outside the tensor the answer is an extrapolation: the slow axes stay within the shape and the second fastest
        (the rows of a matrix) runs over, because an unmasked tail is the common reason.
        """
        rest = (position - self.start) // self.itemsize
        inside = bool(self.contains(np.array([position]), 1)[0])
        order = [a for a in range(len(self.shape)) if self.strides[a] > 0 and (self.shape[a] > 1 or not inside)]
        order.sort(key=lambda a: (-self.strides[a], a))
        index = [0] * len(self.shape)
        for place, axis in enumerate(order):
            steps = rest // self.strides[axis]
            if place < len(order) - 2:
                steps = min(max(steps, 0), self.shape[axis] - 1)
            index[axis] = int(steps)
            rest -= steps * self.strides[axis]
        return tuple(index)


def _merged_axes(shape, strides) -> list[tuple[int, int]]:
    """(size, stride) of the axes that matter, slowest first, neighbours that continue each other made one."""
    axes = sorted(((n, s) for n, s in zip(shape, strides, strict=True) if n > 1 and s > 0), key=lambda a: -a[1])
    merged: list[tuple[int, int]] = []
    for n, s in axes:
        if merged and merged[-1][1] == n * s:
            merged[-1] = (merged[-1][0] * n, s)
        else:
            merged.append((n, s))
    return merged


class Shadow:
    """The state of each element of one storage: initialised? written by whom? touched by which program first?

    `flags` are the bits above. `writer` and `reader` hold the first program of a launch that stored to the element, or
    that read or atomically updated it. Programs are numbered on from launch to launch, so nothing is ever cleared.
    The interpreter runs programs one after another, therefore the first one is enough to find a race.
    """

    def __init__(self, storage, extent: Extent):
        self.storage = storage  # held, so that its address is not given to another tensor while the meter looks
        self.unit = extent.itemsize
        self.named: list = []  # targets that bear a name of the caller's
        nbytes = storage.nbytes()
        sparse = nbytes > DENSE_LIMIT and extent.size * extent.itemsize * 8 < nbytes
        self._offsets = np.empty(0, dtype=np.int64) if sparse else None
        count = 0 if sparse else -(-nbytes // self.unit)
        self.flags = np.zeros(count, dtype=np.uint8)
        self.writer = np.zeros(count, dtype=np.int32)
        self.reader = np.zeros(count, dtype=np.int32)
        self.last_store = -1  # number of the last launch that stored here
        self.add(extent)

    def add(self, extent: Extent) -> None:
        """Make room for a tensor's elements (only a sparse shadow needs it)."""
        if self._offsets is None or not extent.size:
            return
        old = self._offsets
        wanted = self._units(extent.positions().ravel(), extent.itemsize)
        self._offsets = np.union1d(old, wanted)
        place = np.searchsorted(self._offsets, old)
        for name in ("flags", "writer", "reader"):
            grown = np.zeros(self._offsets.size, dtype=getattr(self, name).dtype)
            grown[place] = getattr(self, name)
            setattr(self, name, grown)

    def slots(self, positions: np.ndarray, nbytes: int) -> np.ndarray:
        """Indices into the arrays for accesses of `nbytes` bytes at byte `positions`."""
        units = self._units(positions, nbytes)
        return units if self._offsets is None else np.searchsorted(self._offsets, units)

    def _units(self, positions, nbytes):
        if nbytes < self.unit:  # so an element never has less than one unit
            self._refine(nbytes)
        units = positions >> (self.unit.bit_length() - 1)
        if nbytes > self.unit:
            units = (units[..., None] + np.arange(nbytes // self.unit)).ravel()
        return units

    def _refine(self, unit):
        """A view of a smaller dtype came along: keep the state by its size from now on."""
        ratio = self.unit // unit
        self.unit = unit
        for name in ("flags", "writer", "reader"):
            setattr(self, name, np.repeat(getattr(self, name), ratio))
        if self._offsets is not None:
            self._offsets = (self._offsets[:, None] * ratio + np.arange(ratio)).ravel()

    def flags_of(self, extent: Extent) -> np.ndarray:
        """Flags of each logical element (an element of several units has a bit only if any unit has it)."""
        self.add(extent)
        slots = self.slots(extent.positions().ravel(), extent.itemsize)
        flags = self.flags[slots].reshape(extent.size, extent.itemsize // self.unit)
        return np.bitwise_or.reduce(flags, axis=1).reshape(extent.shape)

    def written_by_kernel(self, extent: Extent) -> np.ndarray:
        """Elements all of whose bytes were last written by a kernel."""
        self.add(extent)
        slots = self.slots(extent.positions().ravel(), extent.itemsize)
        flags = self.flags[slots].reshape(extent.size, extent.itemsize // self.unit)
        return ((flags & KERNEL) != 0).all(axis=1).reshape(extent.shape)

    def change(self, extent: Extent, clear: int = 0, set: int = 0) -> None:
        """Clear and set flag bits of all logical elements of a tensor."""
        self.add(extent)
        slots = self.slots(extent.positions().ravel(), extent.itemsize)
        self.flags[slots] = (self.flags[slots] & np.uint8(~clear & 0xFF)) | np.uint8(set)
