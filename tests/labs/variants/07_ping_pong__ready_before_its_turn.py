"""Waits for its tiles before it asks for the turn, hands both back after one drain, and signals after every turn."""


def ping_pong(blocks, stages):
    barriers = {f"{what}{s}{end}": 2 if end else 1 for what in "kv" for s in range(stages) for end in ("", " read")}

    def producer():
        for block in range(2 * blocks):
            j, t = block // 2, "kv"[block % 2]
            yield "wait", f"{t}{j % stages} read", (j // stages + 1) % 2
            yield "copy", f"{t.upper()}{j % stages}", j, f"{t}{j % stages}"

    def consumer(me):
        if me:
            yield "signal", "go0", 2
        for j in range(blocks + 1):
            products = [("O", "v", j - 1)] * (j > 0) + [("S", "k", j)] * (j < blocks)
            if j:
                yield "exp", j - 1
                yield "update", j - 1
            for _, t, block in products:
                yield "wait", f"{t}{block % stages}", block // stages % 2
            yield "sync", f"go{me}", 2
            for name, t, block in products:
                yield "matmul", name, f"{t.upper()}{block % stages}", block
            yield "signal", f"go{1 - me}", 2
            yield "drain", 0
            for _, t, block in products:
                yield "arrive", f"{t}{block % stages} read"

    return {"producer": producer(), "consumer0": consumer(0), "consumer1": consumer(1)}, barriers
