"""Everything that imports torch: networks, profiling, linearising and executing a plan.

Its size: the user's own program is hooked into and never replayed, so each way in which PyTorch
lets a program hold, change or free a tensor needs a rule of its own (`watch`, `segments`), and
each rule exists on three devices (CUDA, the CPU, and the simulated one that tests use).
"""

from offcert.runtime.torch_versions import check_installed

check_installed()
