"""Plans under `torch.compile`: transfers and recomputation as nodes of the compiled graphs.

Its size: a plan becomes nodes of the graphs that Inductor compiles, across graph breaks, and the
peak is then counted on Inductor's own buffers, which no public interface tells.
"""
