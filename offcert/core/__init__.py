"""Networks, traces, platforms, units, documents: common to all questions; no solver, no torch.

Its size: files are read with one sentence for everything that can be wrong in them, and networks
carry what training really holds of a part that runs again (`carried`).
"""
