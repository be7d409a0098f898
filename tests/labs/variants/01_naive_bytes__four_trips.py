"""The chapter's table turned into code: a sum of four trips, in integers of Python that never overflow."""


def naive_bytes(N, itemsize):
    trips = {"QK^T writes S": 1, "softmax reads S": 1, "softmax writes P": 1, "PV reads P": 1}
    return sum(trips.values()) * N**2 * itemsize
