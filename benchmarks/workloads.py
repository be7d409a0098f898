"""What each launch of a benchmark's case has to do: trips and bytes, for the prediction."""

from __future__ import annotations

from benchmarks.cases import Case
from flashkit.instruments import workload
from flashkit.instruments.workload import Work
from reference.traffic import Shape


def works(case: Case) -> list[Work]:
    """What each launch of a case has to do."""
    s = Shape(
        *(case.N, case.N, case.d, case.d, case.block_q, case.block_k),
        B=case.B,
        H_q=case.H,
        H_kv=case.H,
        causal=case.causal,
    )
    one = {
        "forward": workload.forward,
        "dq": workload.query_gradient,
        "dkdv": workload.key_value_gradients,
        "row_dot": workload.row_dot,
    }
    if case.kernel == "softmax":
        return [workload.row_softmax(case.N, case.columns)]
    return list(workload.naive_attention(s)) if case.kernel == "naive" else [one[case.kernel](s)]
