"""The course's CPU oracles: NumPy, float64, one module a chapter; no torch, no triton.

Conventions, the same everywhere in the course
----------------------------------------------
Shapes     An oracle takes one head: Q ``(N_q, d)``, K ``(N_k, d)``, V ``(N_k, d_v)``. Kernels take
           ``(B, H_q, N_q, d)`` and ``(B, H_kv, N_k, d)``; query head h reads K/V head ``h // (H_q // H_kv)``.
Scale      ``scale`` multiplies the scores Q K^T; it defaults to ``1/sqrt(d)``.
Causal     Key j is visible to query i iff ``j <= i + offset``. ``offset=0`` is top-left (PyTorch's
           ``is_causal``), ``offset=N_k-N_q`` is bottom-right (flash-attn >= 2.1, decode).
Mask       Boolean, True = may attend. A hidden score becomes -inf, never a finite number.
lse        Natural logarithm of the sum of exp of the *scaled* scores of a row: ``m + ln(l)``.
Empty row  A query that sees no key: output 0, lse -inf, gradient 0.
Names      ``Q_i``, ``K_j``, ``V_j`` tiles; ``m`` running maximum, ``l`` running sum, ``acc`` unnormalised
           output; ``block_q`` and ``block_k`` the tile's rows and keys (B_r and B_c in the papers).
Units      Bytes in KiB/MiB/GiB (powers of two). Forward FLOP = 2 B H_q N_q N_k (d + d_v).
"""
