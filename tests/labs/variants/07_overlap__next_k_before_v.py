"""The official kernel's producer: K of block j + 1 is copied before V of block j; tiles are given back later."""


def overlap(trips, stages):
    most, n = max(trips), len(trips)
    barriers = {f"{t}{s}{end}": n if end else 1 for t in "kv" for s in range(stages) for end in ("", "-free")}

    def load(t, j):
        yield "wait", f"{t}{j % stages}-free", 1 - j // stages % 2
        yield "copy", f"{t.upper()}{j % stages}", j, f"{t}{j % stages}"

    def producer():
        yield from load("k", 0)
        for j in range(most):
            if j + 1 < most:
                yield from load("k", j + 1)
            yield from load("v", j)

    def await_and(verb, t, j):
        yield "wait", f"{t}{j % stages}", j // stages % 2
        if verb:
            yield "matmul", verb, f"{t.upper()}{j % stages}", j
        else:
            yield "arrive", f"{t}{j % stages}-free"

    def consumer(blocks):
        for j in range(blocks + 1):
            if j < blocks:
                yield from await_and("S", "k", j)
            if j:
                yield from await_and("O", "v", j - 1)
            if j < blocks:
                yield "drain", 1 if j else 0
                yield "exp", j
            if j:
                yield "drain", 0
                yield "arrive", f"v{(j - 1) % stages}-free"
            if j < blocks:
                yield "arrive", f"k{j % stages}-free"
                yield "update", j
        for j in range(blocks, most):
            yield from await_and("", "k", j)
            yield from await_and("", "v", j)

    names = ["consumer"] if n == 1 else [f"consumer{c}" for c in range(n)]
    return {"producer": producer()} | dict(zip(names, map(consumer, trips), strict=True)), barriers
