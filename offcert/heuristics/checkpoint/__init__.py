"""Checkpoint selection on chains: the data to store so that training takes the least memory.

A chain is given by the sizes ``d_0 … d_n`` in bytes: ``d_0`` is the input, ``d_i`` what layer `i`
makes of ``d_{i-1}``. What is not stored is computed again, segment by segment, when the backward
pass gets there. Each algorithm is a function ``(sizes) -> Selection``;
`offcert.heuristics.checkpoint.selections` has them by name. What a selection costs under the memory
models of the papers is said by `offcert.heuristics.checkpoint.live`, which shares no code with
these.

Its size: six algorithms of two papers on chains and on graphs, each with the paper's own memory
model.
"""
