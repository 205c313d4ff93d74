"""The papers' algorithms, their baselines and our local search: methods of a kind in a file.

They lie by what they decide. `evictions`: which tensors leave; `orders`: that, and in which order
transfers run; `checkpoint`, `rematerialisation`: what runs again; `combined`, `joint`: both;
`modnn`: sub-batches and algorithms; `devices`: the transfers of several devices; `placement`:
addresses.

Each is a function ``method(problem, **options) -> Plan``. One that does not apply to a problem, or
finds no plan, raises `offcert.core.errors.MethodError`; that never means that no plan exists.

Its size: the methods of five papers, as published and as they have to be read where a
paper is silent, and searches of our own for all that may be decided.
"""
