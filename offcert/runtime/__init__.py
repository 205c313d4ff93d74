"""Everything that imports torch: networks, profiling, linearising and executing a plan."""

from offcert.runtime.torch_versions import check_installed

check_installed()
