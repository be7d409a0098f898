"""Each factor guarded on its own, and the larger state left as it is."""

import math


def merge(m_a, l_a, o_a, m_b, l_b, o_b):
    if m_b > m_a:
        m_a, l_a, o_a, m_b, l_b, o_b = m_b, l_b, o_b, m_a, l_a, o_a
    weight = math.exp(m_b - m_a) if m_b > -math.inf else 0.0
    return m_a, l_a + weight * l_b, o_a + weight * o_b
