"""Which tensor an access belongs to, and how to name the element of an access that belongs to none."""

from __future__ import annotations

import numpy as np
import torch

from flashkit.instruments import hooks
from flashkit.instruments.memory import Extent, Shadow
from flashkit.instruments.record import Traffic

WRAP = 1 << 32  # what a 32-bit product loses when it overflows


class Target:
    """A tensor under the name by which findings and traffic speak of it."""

    def __init__(self, name: str, shadow: Shadow, extent: Extent):
        self.name, self.shadow, self.extent, self.traffic = name, shadow, extent, Traffic()


class Window:
    """A tensor argument of the running launch: the addresses it makes legal, and the targets it stands for."""

    def __init__(self, base: int, tensor: torch.Tensor, shadow: Shadow, targets: list[Target]):
        self.base, self.tensor, self.shadow, self.targets = base, tensor, shadow, targets
        self.extent = Extent.of(tensor)
        self.low, self.high = base + self.extent.start, base + self.extent.end

    def contains(self, addresses: np.ndarray, nbytes: int) -> np.ndarray:
        return self.extent.contains(addresses - self.base, nbytes)

    def holds_all(self, addresses, low: int, high: int, nbytes: int) -> bool:
        if low < self.low or high + nbytes > self.high:
            return False
        return self.extent.solid or bool(self.contains(addresses, nbytes).all())

    def target_at(self, address: int) -> Target:
        """The target an address belongs to (several only where one argument covers several named tensors)."""
        if len(self.targets) > 1:
            for target in self.targets:
                if target.extent.contains(np.array([address - self.base]), 1)[0]:
                    return target
        return self.targets[0]

    def distance(self, address: int) -> int:
        return max(self.low - address, address - self.high, 0)


class Access:
    """One load, store or atomic of one program, while it is being judged."""

    def __init__(self, kind: str, pointers, mask, launch: int, base: int, reads: bool):
        self.kind, self.reads, self.launch = kind, reads, launch
        self.block = np.asarray(pointers.data).view(np.int64)
        self.mask = hooks.mask_array(mask, self.block.shape)
        self.active = self.block.ravel() if self.mask.all() else self.block[self.mask]
        self.nbytes = hooks.pointed_size(pointers)
        self.line = hooks.student_line()
        self.program, number = hooks.program()
        self.me = base + 1 + number  # this program among all programs of all launches


def plausible(windows: list[Window], access: Access, outside: np.ndarray, address: int) -> Window | None:
    """The tensor that most of the block's other lanes are in, else the nearest. `outside` marks active lanes."""
    inside = access.active[~outside]
    counts = [int(w.contains(inside, access.nbytes).sum()) if inside.size else 0 for w in windows]
    if any(counts):
        return windows[int(np.argmax(counts))]
    return min(windows, key=lambda w: w.distance(address), default=None)


def wrapped(windows: list[Window], lanes: np.ndarray, nbytes: int) -> tuple[Window, int] | None:
    """The tensor into which every lane comes back when 2**32 or a multiple is added to its signed 32-bit offset.

    Comes with the bytes that are missing from the first lane's address.
    """
    for window in windows:
        size = window.extent.itemsize  # offsets count elements
        lost = np.zeros(lanes.shape, dtype=np.int64)
        signed = np.abs(lanes - window.base) <= WRAP // 2 * size  # what a signed 32-bit offset can reach
        for turns in (1, 2, 3, 4):
            lost[signed & window.contains(lanes + turns * WRAP * size, nbytes)] = turns * WRAP * size
        if lost.all():
            return window, int(lost[0])
    return None


def along_the_block(access: Access, outside: np.ndarray, lane: int, window: Window, target: Target):
    """Index of an outside lane, counted on along the block from the nearest lane inside the tensor; None if none is.

    `outside` marks the block's lanes, flat. A tile's neighbours tell a row too many from a column too many, which the
    address alone cannot.
    """
    extent, block = target.extent, access.block
    inside = (access.mask & ~outside.reshape(block.shape)) & extent.contains(block - window.base, access.nbytes)
    here = np.unravel_index(lane, block.shape)
    for axis in reversed(range(block.ndim)):
        along = (*here[:axis], slice(None), *here[axis + 1 :])
        near = np.flatnonzero(inside[along])
        if not near.size:
            continue
        near = int(near[np.argmin(np.abs(near - here[axis]))])
        step, rest = divmod(int(block[along][here[axis]] - block[along][near]), int(here[axis]) - near)
        if rest or step == 0:
            continue
        same = [a for a, s in enumerate(extent.strides) if s * extent.itemsize == abs(step)]
        if same:
            long = [a for a in same if extent.shape[a] > 1] or same
            rows = len(extent.shape) - 2
            index = list(extent.index_of(int(block[along][near]) - window.base))
            chosen = rows if rows in same else long[-1]
            index[chosen] += (int(here[axis]) - near) * (1 if step > 0 else -1)
            return tuple(index)
    return None
