#!/usr/bin/env python3
"""Check a certificate of offcert with nothing but Python's standard library.

    python offcert_check.py CERTIFICATE.json

Written from the pages about formats and theory, apart from the program that makes certificates:
none of its code is used. It checks, in integers and rationals,

- the document: names of fields, kinds of values, version, hash of the problem, digest;
- the execution, if computations may run again: that it is a legal one of the network;
- the schedule: order of operations, transfers, the link, the memory at every moment;
- lower bounds that need no search: Proposition 3, the fractional bound, both with whole tensors,
  large tensors, forced returns and those on moving and running again, with
  their multipliers and trees of cases;
- that objective, lower bound, gap and status follow from these.

What it does not know it says: such a bound is neither confirmed nor refuted. Exit code 0: all that
was claimed holds; 1: something does not; 2: no readable certificate; 3: nothing is wrong, but the
lower bound rests on something that this program does not know.
"""

import base64
import hashlib
import json
import math
import sys
import zlib
from bisect import bisect, insort
from fractions import Fraction
from itertools import pairwise

LARGEST_INTEGER, LONGEST_PROOF = 2**63 - 1, 1 << 25
# Sums of sizes, and of those of large tensors, are told apart up to so many units (theory).
FINEST, FINEST_LARGE = 1 << 24, 1 << 26


class WrongError(Exception):
    """The document claims something that does not hold."""


class UnknownError(Exception):
    """The document claims something that this program cannot check."""


def read_document(path):
    """Return the JSON value of a file; keys given twice, NaN and infinity are refused."""

    def pairs(items):
        found = dict(items)
        if len(found) != len(items):
            raise ValueError("a key is given twice")
        return found

    def constant(name):
        raise ValueError(f"{name} is no number of JSON")

    with open(path, encoding="utf-8") as file:
        return json.load(file, object_pairs_hook=pairs, parse_constant=constant)


def sha256(value):
    """Return the hash of a JSON value: sorted keys, no white space, ASCII."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def integer(value, place, least=0):
    """Return a value that has to be an integer of at least so much."""
    if type(value) is not int or not least <= value <= LARGEST_INTEGER:
        raise WrongError(f"{place} must be an integer of at least {least}, not {value!r:.40}")
    return value


def integers(value, place, least=0, count=None):
    """Return a list that has to hold integers."""
    if not isinstance(value, list) or count not in (None, len(value)):
        raise WrongError(f"{place} must be a list of {count or 'any number of'} integers")
    return [integer(item, f"{place}[{i}]", least) for i, item in enumerate(value)]


def rational(value, place):
    """Return a value that has to be a rational in lowest terms, such as "3/2", as a fraction."""
    parts = value.split("/") if isinstance(value, str) else ()
    if len(parts) != 2 or not all(p.isascii() and p.isdigit() and len(p) <= 40 for p in parts):
        raise WrongError(f'{place} must be a rational such as "3/2", not {value!r:.40}')
    above, below = map(int, parts)
    if not below or value != f"{above}/{below}" or math.gcd(above, below) != 1:
        raise WrongError(f"{place} must be in lowest terms, not {value}")
    return Fraction(above, below)


def text(value, place):
    """Return a value that has to be a text."""
    if not isinstance(value, str):
        raise WrongError(f"{place} must be a string, not {value!r:.40}")
    return value


def take(document, place, required, optional=()):
    """Return the fields of an object, which has all required ones and no unknown ones."""
    if not isinstance(document, dict):
        raise WrongError(f"{place} must be an object")
    for name in required:
        if name not in document:
            raise WrongError(f"{place}.{name} is missing")
    for name in document:
        if name not in required and name not in optional:
            raise WrongError(f"{place}.{name} is not known")
    return document


class Trace:
    """Operations as (ticks, workspace) and tensors as (size, uses, whether it may leave).

    Their names are two lists; none are known of a trace that no document describes.
    """

    def __init__(self, operations, tensors, names=(None, None)):
        self.operations, self.tensors = operations, tensors
        self.names, self.tensor_names = names
        # A gap is (tensor, use before, use after), with an operation in between.
        self.gaps = [
            (number, before, after)
            for number, (size, uses, leaves) in enumerate(tensors)
            if leaves and size
            for before, after in pairwise(uses)
            if after >= before + 2
        ]
        self.computing = sum(ticks for ticks, _ in operations)

    def size(self, gap):
        """Return the size of a gap's tensor."""
        return self.tensors[gap[0]][0]

    def writer(self, gap):
        """Return the operation that writes a gap's tensor; -1 for what is there at the start."""
        return self.tensors[gap[0]][1][0]

    def demands(self):
        """Return for each operation what it needs on the device if nothing is absent."""
        steps = [0] * (len(self.operations) + 1)
        for size, uses, _ in self.tensors:
            steps[max(uses[0], 0)] += size
            steps[uses[-1] + 1] -= size
        found, now = [], 0
        for step, (_, workspace) in zip(steps[:-1], self.operations, strict=True):
            now += step
            found.append(now + workspace)
        return found

    def gaps_over(self):
        """Yield for each operation the gaps over it."""
        opening, closing = {}, {}
        for number, (_, before, after) in enumerate(self.gaps):
            opening.setdefault(before + 1, []).append(number)
            closing.setdefault(after, []).append(number)
        now = set()
        for operation in range(len(self.operations)):
            now -= set(closing.get(operation, ()))
            now |= set(opening.get(operation, ()))
            yield sorted(now)


def read_trace(document, place, offload):
    """Return the trace of a document; nothing may leave unless `offload`."""
    fields = take(document, place, ("operations", "tensors"))
    operations = []
    for i, each in enumerate(fields["operations"]):
        here = f"{place}.operations[{i}]"
        take(each, here, ("name", "duration", "workspace"))
        names = ("duration", "workspace")
        operations.append(tuple(integer(each[name], f"{here}.{name}") for name in names))
    if not operations:
        raise WrongError(f"{place}.operations must not be empty")
    tensors = []
    for i, each in enumerate(fields["tensors"]):
        here = f"{place}.tensors[{i}]"
        take(each, here, ("name", "size", "uses", "evictable"))
        uses = integers(each["uses"], f"{here}.uses", -1)
        rising = all(a < b for a, b in pairwise(uses))
        if not rising or not uses or not 0 <= uses[-1] < len(operations):
            raise WrongError(f"{here}.uses must be operations, by increasing index")
        if type(each["evictable"]) is not bool:
            raise WrongError(f"{here}.evictable must be true or false")
        leaves = each["evictable"] and offload
        tensors.append((integer(each["size"], f"{here}.size"), uses, leaves))
    parts = ("operations", "tensors")
    return Trace(operations, tensors, [names_in(fields[part], f"{place}.{part}") for part in parts])


def names_in(items, place):
    """Return the names of the objects in a list."""
    return [text(each["name"], f"{place}[{i}].name") for i, each in enumerate(items)]


def chain_trace(chain, place, offload):
    """Return the trace of a chain: tensors x_0 ... x_{L+1}, then y_{L+1} ... y_0."""
    stages = len(chain["forward"])
    fields = ("forward", "backward", "forward_workspace", "backward_workspace")
    rows = {name: integers(chain[name], f"{place}.{name}", 0, stages) for name in fields}
    for name in ("activation", "gradient"):
        rows[name] = integers(chain[name], f"{place}.{name}", 0, stages + 1)
    last = 2 * stages - 1
    operations = list(zip(rows["forward"], rows["forward_workspace"], strict=True))
    operations += list(zip(rows["backward"], rows["backward_workspace"], strict=True))[::-1]
    tensors = []
    for i in range(stages + 1):
        uses = {i - 1} | ({i, last - i} if i < stages else set()) | ({last - i + 1} if i else set())
        tensors.append((rows["activation"][i], sorted(uses), offload))
    for i in reversed(range(stages + 1)):
        uses = ({last - i} if i < stages else set()) | ({last - i + 1} if i else set())
        tensors.append((rows["gradient"][i], sorted(uses), False))
    names = [f"x{i}" for i in range(stages + 1)] + [f"y{i}" for i in reversed(range(stages + 1))]
    return Trace(operations, tensors, (pass_names(stages), names))


def pass_names(stages):
    """Return the names of a chain's operations: F0, F1, ... forward, then ... B1, B0 back."""
    return [f"F{i}" for i in range(stages)] + [f"B{i}" for i in reversed(range(stages))]


class Network:
    """Computations as dictionaries, values as (size, whether it may leave, base or None)."""

    def __init__(self, computations, values, names):
        self.computations, self.values = computations, values
        self.names, self.value_names = names
        self.writer = [-1] * len(values)
        for number, each in enumerate(computations):
            for value in each["writes"]:
                if self.writer[value] >= 0:
                    raise WrongError(f"value {value} is written twice")
                self.writer[value] = number

    def memory(self, value):
        """Return the value in whose memory one lies."""
        base = self.values[value][2]
        return value if base is None else base


def read_network(document, place):
    """Return the network of a document."""
    fields = take(document, place, ("computations", "values"))
    values = []
    for i, each in enumerate(fields["values"]):
        here = f"{place}.values[{i}]"
        take(each, here, ("name", "size", "evictable"), ("base",))
        base = each.get("base")
        if base is not None and integer(base, f"{here}.base") >= len(fields["values"]):
            raise WrongError(f"{here}.base is no value")
        values.append((integer(each["size"], f"{here}.size"), bool(each["evictable"]), base))
    computations = []
    for i, each in enumerate(fields["computations"]):
        here = f"{place}.computations[{i}]"
        required = ("name", "duration", "workspace", "reads", "writes", "repeatable")
        take(each, here, required, ("holds", "lean", "of"))
        row = {name: integer(each[name], f"{here}.{name}") for name in ("duration", "workspace")}
        for name in ("reads", "writes", "holds", "of"):
            row[name] = integers(each.get(name, []), f"{here}.{name}")
            most, rising = len(values), all(a < b for a, b in pairwise(row[name]))
            most = i if name == "of" else most
            if any(number >= most for number in row[name]) or (name != "of" and not rising):
                raise WrongError(f"{here}.{name} must increase, and name what there is")
        row["lean"] = None if each.get("lean") is None else integer(each["lean"], f"{here}.lean")
        row["repeatable"] = bool(each["repeatable"])
        computations.append(row)
    if not computations:
        raise WrongError(f"{place}.computations must not be empty")
    names = [names_in(fields[part], f"{place}.{part}") for part in ("computations", "values")]
    return Network(computations, values, names)


def checkpoint_network(chain, place):
    """Return the network of a chain with recomputation: values a, then e, then d."""
    stages = len(chain["forward"])
    count = {"output": stages + 1, "gradient": stages + 1}
    names = ("forward", "backward", "output", "saved", "gradient")
    names += ("forward_workspace", "backward_workspace")
    rows = {n: integers(chain[n], f"{place}.{n}", 0, count.get(n, stages)) for n in names}
    extra = [saved - out for saved, out in zip(rows["saved"], rows["output"][1:], strict=True)]
    if min(extra, default=0) < 0:
        raise WrongError(f"{place}.saved must be at least the output of each stage")
    values = [(size, True, None) for size in rows["output"] + extra]
    values += [(size, False, None) for size in rows["gradient"]]
    first_extra, first_gradient = stages + 1, 2 * stages + 1
    computations = []
    for i in range(stages):
        workspace, writes = rows["forward_workspace"][i], [i + 1, first_extra + i]
        each = {"duration": rows["forward"][i], "workspace": workspace, "lean": workspace}
        computations.append({**each, "reads": [i], "writes": writes, "repeatable": True})
    for i in reversed(range(stages)):
        top, gradient = i == stages - 1, first_gradient + i
        each = {"duration": rows["backward"][i], "workspace": rows["backward_workspace"][i]}
        each["reads"] = [i, i + 1, first_extra + i] + ([] if top else [gradient + 1])
        each["writes"] = [gradient, gradient + 1] if top else [gradient]
        computations.append({**each, "lean": None, "repeatable": False})
    for each in computations:
        each["holds"] = []
    counts = {"a": stages + 1, "e": stages, "d": stages + 1}
    names = [f"{letter}{i}" for letter, count in counts.items() for i in range(count)]
    return Network(computations, values, (pass_names(stages), names))


def plain_trace(network, offload):
    """Return the trace of a network in which everything runs once and is kept."""
    # A copy of each memory, with the operations that use it, and its last change in place.
    uses, settled = {}, {}
    for value, (_, _, base) in enumerate(network.values):
        if base is None and network.writer[value] < 0:
            uses[value] = [-1]
    for number, each in enumerate(network.computations):
        for value in each["reads"] + each["holds"]:
            memory = network.memory(value)
            if memory not in uses or (
                value not in each["holds"] and network.writer[value] >= number
            ):
                if value in each["reads"]:
                    raise WrongError(f"computation {number} reads value {value} before it is there")
                continue
            # What is held without being there yet is not held.
            if value in each["reads"] or network.writer[value] < number:
                uses[memory].append(number)
        for value in each["writes"]:
            memory = network.memory(value)
            if memory == value:
                uses[value] = [number]
            else:
                uses[memory].append(number)
                settled[memory] = number
    tensors, names = [], []
    there = [value for value in uses if uses[value] != [-1]]
    for value in sorted(there, key=lambda value: (network.writer[value], value)):
        size, leaves, _ = network.values[value]
        first, last = min(uses[value]), max(uses[value])
        between = {*uses[value], *range(first, settled.get(value, first) + 1)}
        found = sorted(between if leaves else {first, last})
        tensors.append((size, found, leaves and offload))
        names.append(network.value_names[value])
    operations = [(each["duration"], each["workspace"]) for each in network.computations]
    return Trace(operations, tensors, (network.names, names))


KINDS = ("chain", "trace", "network", "checkpoint_chain")


class Problem:
    """A problem: its network, platform, and what may be done."""

    def __init__(self, document):
        required = ("format", "version", "name", "memory", "bandwidth", "link", "transfers")
        optional = ("prefetch_bandwidth", "sharing", "source", "recompute", "offload", "minimise")
        optional += ("deadline", "uncertainty", "busy_bandwidth", "busy_prefetch_bandwidth")
        take(document, "problem", (*required, "units"), (*KINDS, *optional))
        version = integer(document["version"], "problem.version")
        if (document["format"], version) != ("offcert-problem", 1):
            raise WrongError("problem must be of the format offcert-problem, version 1")
        text(document["name"], "problem.name")
        self.memory = integer(document["memory"], "problem.memory")
        self.out = rational(document["bandwidth"], "problem.bandwidth")
        self.back = self.out
        if "prefetch_bandwidth" in document:
            self.back = rational(document["prefetch_bandwidth"], "problem.prefetch_bandwidth")
        if not self.out or not self.back:
            raise WrongError("problem.bandwidth must be positive")
        # What is as usual is left out.
        usual = {"prefetch_bandwidth": document["bandwidth"], "sharing": 1, "recompute": "none"}
        for name, value in {**usual, "offload": True, "minimise": "time", "deadline": None}.items():
            if document.get(name, ...) == value:
                raise WrongError(f"problem.{name} must be left out where it is {value}")
        sharing = integer(document.get("sharing", 1), "problem.sharing", 1)
        # To the host and from it: the rates alone, and those while the other direction runs, too.
        busy = [each for each in ("busy_bandwidth", "busy_prefetch_bandwidth") if each in document]
        rates = [rational(document[name], f"problem.{name}") for name in busy]
        alone = [self.out, self.back]
        slow = [min(pair) for pair in zip(rates, alone, strict=False)]
        if busy and (len(busy) < 2 or slow != rates or rates == alone or not all(rates)):
            raise WrongError("problem must have two busy rates, no higher than alone, or none")
        if busy and (document["link"], document["transfers"]) != ("duplex", "atomic"):
            raise WrongError("problem.busy_bandwidth is for atomic transfers on duplex links")
        self.slow = [rate / sharing for rate in (slow or alone)]
        self.out, self.back = self.out / sharing, self.back / sharing
        self.duplex = self._one_of(document, "link", ("simplex", "duplex")) == "duplex"
        kinds = ("atomic", "interruptible", "fractional")
        self.transfers = self._one_of(document, "transfers", kinds)
        self.recompute = self._one_of(document, "recompute", ("none", "chain", "any"), "none")
        self.minimise = self._one_of(document, "minimise", ("time", "memory"), "time")
        self.deadline = document.get("deadline")
        if self.deadline is not None:
            integer(self.deadline, "problem.deadline")
        self.offload = document.get("offload", True)
        if type(self.offload) is not bool:
            raise WrongError("problem.offload must be true or false")
        self._network(document)

    @staticmethod
    def _one_of(document, name, known, default=None):
        value = document.get(name, default)
        if value not in known:
            raise WrongError(f"problem.{name} must be one of {', '.join(known)}, not {value!r:.40}")
        return value

    def _network(self, document):
        given = [kind for kind in KINDS if kind in document]
        if len(given) != 1:
            raise WrongError(f"problem must have exactly one of {', '.join(KINDS)}")
        (kind,) = given
        content, place = document[kind], f"problem.{kind}"
        self.network = None
        rows = ("forward", "backward", "gradient", "forward_workspace", "backward_workspace")
        if kind == "trace":
            self.trace = read_trace(content, place, self.offload)
        elif kind == "chain":
            take(content, place, (*rows, "activation"), ("names",))
            self.trace = chain_trace(content, place, self.offload)
            saved = {"output": content["activation"], "saved": content["activation"][1:]}
            self.network = checkpoint_network({**content, **saved}, place)
        elif kind == "network":
            self.network = read_network(content, place)
            self.trace = plain_trace(self.network, self.offload)
        else:
            take(content, place, (*rows, "output", "saved"), ("names",))
            self.network = checkpoint_network(content, place)
            self.trace = plain_trace(self.network, self.offload)
        if self.recompute != "none" and self.network is None:
            raise WrongError("problem.recompute needs a network, not a trace")

    def ticks(self, size, out):
        """Return how long a transfer of so many units lasts."""
        return math.ceil(size / (self.out if out else self.back))


def check_execution(problem, document):
    """Return the trace of an execution; raise if it is no legal one of the problem's network."""
    if problem.recompute == "none":
        raise WrongError("there is one, although nothing may run again")
    take(document, "execution", ("trace", "runs", "values"), ("program",))
    network = problem.network
    trace = read_trace(document["trace"], "execution.trace", problem.offload)
    runs = integers(document["runs"], "execution.runs", 0, len(trace.operations))
    values = integers(document["values"], "execution.values", -1, len(trace.tensors))
    if any(run >= len(network.computations) for run in runs):
        raise WrongError("execution.runs names a computation that does not exist")
    if any(value >= len(network.values) for value in values):
        raise WrongError("execution.values names a value that does not exist")
    _check_order(network, runs)
    _check_copies(network, trace, runs, values)
    changed = [[] for _ in values]
    for position, run in enumerate(runs):
        _check_run(network, trace, runs, values, changed, position, run)
    if problem.recompute == "chain":
        for number, (_, uses, _) in enumerate(trace.tensors):
            stored = uses[-1] > uses[0] + 1
            if stored and network.computations[runs[uses[-1]]]["repeatable"]:
                raise WrongError(f"tensor {number} is stored, and given up before it is read back")
    return trace


def _check_order(network, runs):
    first = {}
    for position, run in enumerate(runs):
        if run in first and not network.computations[run]["repeatable"]:
            raise WrongError(f"execution runs computation {run} again, which may run once only")
        first.setdefault(run, position)
    if list(first) != list(range(len(network.computations))):
        raise WrongError("execution.runs must run every computation, the first runs in order")


def _check_copies(network, trace, runs, values):
    for number, value in enumerate(values):
        size, uses, leaves = trace.tensors[number]
        if value < 0:
            continue
        known, may_leave, base = network.values[value]
        maker = runs[uses[0]] if uses[0] >= 0 else -1
        if base is not None or size < known or (leaves and not may_leave):
            raise WrongError(f"execution.values[{number}] is no copy of value {value}")
        if maker != network.writer[value]:
            raise WrongError(f"tensor {number} is not made by the computation that makes it")


def _check_run(network, trace, runs, values, changed, position, run):
    """Check one run; note what it changes in place."""
    each = network.computations[run]
    found = {}
    for value in each["reads"]:
        memory = network.memory(value)
        # The program had changed this memory by these computations when it came here first.
        states = [
            network.writer[v]
            for v, (_, _, base) in enumerate(network.values)
            if base == memory and network.writer[v] < run
        ]
        copies = [
            number
            for number, copy in enumerate(values)
            if copy == memory and _in_use(trace.tensors[number], position)
        ]
        fitting = [number for number in copies if sorted(changed[number]) == sorted(set(states))]
        if not fitting:
            raise WrongError(f"run {position} (computation {run}) lacks value {value}")
        found[memory] = fitting[-1]
    discarded = 0
    for value in each["writes"]:
        size, _, base = network.values[value]
        if base is not None:
            number = found.get(base)
            if number is None:
                raise WrongError(f"run {position} changes value {base}, which it does not read")
            changed[number].append(run)
            _, uses, leaves = trace.tensors[number]
            known = [use for use in uses if use <= position]
            if leaves and any(b >= a + 2 for a, b in pairwise(known)):
                raise WrongError(f"tensor {number} may leave before it is changed at {position}")
        elif not any(
            c == value and trace.tensors[n][1][0] == position for n, c in enumerate(values)
        ):
            discarded += size if size else 0
            each = {**each, "discards": True}
    _check_cost(trace.operations[position], each, discarded, position)


def _in_use(tensor, position):
    _, uses, leaves = tensor
    within = uses[0] < position <= uses[-1]
    return within and (not leaves or position in uses)


def _check_cost(operation, each, discarded, position):
    ticks, workspace = operation
    least = each["workspace"]
    if each.get("discards"):
        least = least + discarded if each["lean"] is None else each["lean"]
    if ticks < each["duration"] or workspace < least:
        raise WrongError(f"run {position} lasts less, or takes less workspace, than it has to")


def check_schedule(problem, trace, document):
    """Return makespan and peak of a schedule with atomic transfers; raise if it is none."""
    take(document, "schedule", ("operations",), ("transfers", "pieces"))
    if "pieces" in document:
        raise UnknownError("schedules whose transfers pause or move parts")
    if len(document["operations"]) != len(trace.operations):
        raise WrongError("schedule.operations must have an entry for each operation")
    starts, ends, now = [], [], 0
    for i, (each, (ticks, _)) in enumerate(
        zip(document["operations"], trace.operations, strict=True)
    ):
        take(each, f"schedule.operations[{i}]", ("name", "start", "end"))
        if trace.names is not None and each["name"] != trace.names[i]:
            raise WrongError(f"schedule.operations[{i}].name is not {trace.names[i]!r:.40}")
        start = integer(each["start"], f"schedule.operations[{i}].start")
        if start < now or integer(each["end"], f"schedule.operations[{i}].end") != start + ticks:
            raise WrongError(f"operation {i} begins before the one before ends, or lasts wrong")
        now = start + ticks
        starts.append(start)
        ends.append(now)
    moves = _check_transfers(problem, trace, document["transfers"], starts, ends)
    peak = _peak(problem, trace, starts, ends, moves)
    return ends[-1], peak


def _check_transfers(problem, trace, transfers, starts, ends):
    """Return when the memory of each evicted gap is released (None: not at all) and claimed."""
    known = set(trace.gaps)
    offloads, prefetches, busy = {}, {}, {True: [], False: []}
    for i, each in enumerate(transfers):
        here = f"schedule.transfers[{i}]"
        take(each, here, ("kind", "tensor", "name", "gap", "start", "end"))
        gap = (
            integer(each["tensor"], f"{here}.tensor"),
            *integers(each["gap"], f"{here}.gap", -1, 2),
        )
        if gap not in known:
            raise WrongError(f"{here}.gap is no gap of its tensor")
        if trace.tensor_names is not None and each["name"] != trace.tensor_names[gap[0]]:
            raise WrongError(f"{here}.name is not {trace.tensor_names[gap[0]]!r:.40}")
        out = each["kind"] == "offload"
        if not out and each["kind"] != "prefetch":
            raise WrongError(f"{here}.kind must be offload or prefetch")
        start, end = (integer(each[name], f"{here}.{name}") for name in ("start", "end"))
        busy[out].append((start, end, trace.size(gap), here))
        table, key = (offloads, gap[0]) if out else (prefetches, gap)
        if key in table:
            raise WrongError(f"{here} moves what has been moved that way")
        table[key] = (start, end)
        writer = trace.writer(gap)
        if out and writer >= 0 and start < ends[writer]:
            raise WrongError(f"{here} starts before its tensor is written")
        if not out and end > starts[gap[2]]:
            raise WrongError(f"{here} ends after the operation has started that needs it")
    for rows in busy.values() if problem.duplex else [busy[True] + busy[False]]:
        rows.sort()
        if any(after[0] < before[1] for before, after in pairwise(rows)):
            raise WrongError("two transfers are under way at a time on one link")
    for out, rows in busy.items():
        rate, slow = (problem.out, problem.back)[not out], problem.slow[not out]
        for start, end, size, here in rows:

            def moved(until, start=start, rate=rate, slow=slow, others=busy[not out]):
                both = sum(max(0, min(until, e) - max(start, s)) for s, e, *_ in others)
                return (until - start - both) * rate + both * slow

            if end < start or moved(end) < size or (end > start and moved(end - 1) >= size):
                raise WrongError(f"{here} does not last as long as its size asks for")
    moves = {}
    for gap, (start, _) in prefetches.items():
        if gap[0] not in offloads:
            raise WrongError(f"tensor {gap[0]} returns and has never left")
        opened = ends[gap[1]] if gap[1] >= 0 else 0
        if start < max(opened, offloads[gap[0]][1]):
            raise WrongError(f"tensor {gap[0]} returns before its memory is released")
        moves[gap] = (offloads[gap[0]][1], start)
    return moves


def _peak(problem, trace, starts, ends, moves):
    """Return the most memory that is taken at a moment; raise if it is more than there is.

    Moments within one tick: first what ends, then operations of no duration one by one, then what
    begins. A moment is (tick, place); an operation of no duration begins at an odd place.
    """
    begin, finish, places = [], [], {}
    for start, end in zip(starts, ends, strict=True):
        if start == end:
            places[start] = places.get(start, 0) + 1
            begin.append((start, 2 * places[start] - 1))
            finish.append((start, 2 * places[start]))
        else:
            begin.append((start, math.inf))
            finish.append((end, 0))
    changes = []
    for number, (_, workspace) in enumerate(trace.operations):
        changes += [(begin[number], workspace), (finish[number], -workspace)]
    for number, (size, uses, _) in enumerate(trace.tensors):
        taken = begin[uses[0]] if uses[0] >= 0 else (-1, 0)
        changes += [(taken, size), (finish[uses[-1]], -size)]
        for before, after in pairwise(uses):
            if (number, before, after) in moves:
                left, claimed = moves[number, before, after]
                opened = finish[before] if before >= 0 else (0, 0)
                changes += [(max(opened, (left, 0)), -size), ((claimed, math.inf), size)]
    changes.sort(key=lambda change: (change[0], change[1] > 0))
    now = peak = 0
    for i, (moment, change) in enumerate(changes):
        now += change
        if i + 1 == len(changes) or changes[i + 1][0] != moment:
            peak = max(peak, now)
            if problem.minimise == "time" and now > problem.memory:
                raise WrongError(f"{now} units are taken at tick {moment[0]}, of {problem.memory}")
    return peak


def sums_up_to(sizes, most):
    """Return the sums of subsets up to `most`, as bits of an integer."""
    bits, window = 1, (1 << (most + 1)) - 1
    for size in sizes:
        if size <= most:
            bits |= (bits << size) & window
    return bits


def least_sum(sizes, amount):
    """Return a bound on the least sum of some sizes that is at least `amount`; often exact."""
    unit, slack = math.gcd(*sizes), 0
    if sum(sizes) > FINEST * unit:
        unit = -(-sum(sizes) // FINEST)
        slack = len(sizes) * (unit - 1)
    units = [size // unit for size in sizes]
    wanted = max(0, -(-(amount - slack) // unit))
    # The least sum from there on is all but the greatest sum that may be left out.
    left = sums_up_to(units, sum(units) - wanted).bit_length() - 1
    return max(amount, (sum(units) - left) * unit)


def required(problem, trace, whole=False):
    """Return for each operation what has to be absent; with `whole`, as a sum of sizes."""
    needs = [max(0, demand - problem.memory) for demand in trace.demands()]
    if not whole:
        return needs
    known = {}
    for operation, over in enumerate(trace.gaps_over()):
        if needs[operation]:
            sizes = tuple(sorted(trace.size(trace.gaps[number]) for number in over))
            if sum(sizes) < needs[operation]:
                raise UnknownError("bounds on problems without any schedule")
            key = sizes, needs[operation]
            if key not in known:
                known[key] = least_sum(*key)
            needs[operation] = known[key]
    return needs


def required_of_large(problem, trace, smallest):
    """Return the same, with tensors of at least `smallest` units as wholes."""
    needs = required(problem, trace)
    large = [trace.size(gap) for gap in trace.gaps if trace.size(gap) >= smallest]
    unit = math.gcd(*large) or 1
    known = {}
    for operation, over in enumerate(trace.gaps_over()):
        sizes = [trace.size(trace.gaps[number]) for number in over]
        wholes = tuple(sorted(size // unit for size in sizes if size >= smallest))
        rest = needs[operation] - sum(size for size in sizes if size < smallest)
        if rest <= 0:
            continue
        if sum(wholes) > FINEST_LARGE:
            raise WrongError(f"sums of tensors from {smallest} on are too many to be told apart")
        wanted = -(-rest // unit)
        if sum(wholes) < wanted:
            raise UnknownError("bounds on problems without any schedule")
        if (wholes, wanted) not in known:
            left = sums_up_to(wholes, sum(wholes) - wanted).bit_length() - 1
            known[wholes, wanted] = sum(wholes) - left
        needs[operation] = max(needs[operation], known[wholes, wanted] * unit)
    return needs


def proposition_3(problem, trace, needs):
    """Return the bound of Proposition 3."""
    most = max(needs)
    return max(trace.computing, math.ceil(most / problem.out + most / problem.back))


def fractional(problem, trace, needs):
    """Return the greatest sum of a head and a tail, byte by byte."""
    # A tick is cut so finely that a unit takes a whole number of parts, each way.
    parts = problem.out.numerator * problem.back.numerator
    rates = [int(parts / problem.out), int(parts / problem.back)]
    ticks = [parts * each for each, _ in trace.operations]
    count = len(ticks)
    rows = [(gap[1], gap[2], trace.writer(gap), trace.size(gap)) for gap in trace.gaps]
    heads = _ends(ticks, needs, rates[0], rows)
    rows = [(count - 1 - q, count - 1 - p, count - 1 - q, size) for p, q, _, size in rows]
    tails = _ends(ticks[::-1], needs[::-1], rates[1], rows)
    best = max(heads[o] + ticks[o] + tails[count - 1 - o] for o in range(count))
    return -(-best // parts)


def in_pieces(problem, trace, needs):
    """Return the sum of the fractional bounds of the pieces between which nothing is away."""
    count, uncut, owned, total, spans = len(trace.operations), set(), {}, 0, {}
    for number, _, after in trace.gaps:
        # As soon as it is written it may leave.
        spans[number] = (trace.tensors[number][1][0], after)
    for before, after in spans.values():
        uncut.update(range(before + 1, after + 1))
    cuts = [operation for operation in range(1, count) if operation not in uncut]
    for number, before, _ in trace.gaps:
        owned.setdefault(bisect(cuts, before), set()).add(number)
    for piece, (first, end) in enumerate(pairwise([0, *cuts, count])):
        tensors = []
        for number in sorted(owned.get(piece, ())):
            size, uses, leaves = trace.tensors[number]
            within = {min(max(use, first - 1), end - 1) - first for use in uses}
            tensors.append((size, sorted(within), leaves))
        part = Trace(trace.operations[first:end], tensors)
        total += fractional(problem, part, needs[first:end])
    return total


def _ends(ticks, needs, rate, gaps):
    """Return for each operation when it can start, in parts of a tick.

    A gap is (use before, use after, the use after which its bytes are available, size).
    """
    opening = {}
    for gap in gaps:
        opening.setdefault(max(gap[0] + 1, 0), []).append(gap)
    starts, waiting, now = [], [], 0
    for operation, length in enumerate(ticks):
        waiting = [row for row in waiting if row[1] > operation]
        for _, after, made, size in opening.get(operation, ()):
            ready = starts[made] + ticks[made] if made >= 0 else 0
            insort(waiting, (ready, after, size))
        out, left = 0, needs[operation]
        for ready, _, size in waiting:
            if left <= 0:
                break
            out = max(out, ready) + rate * min(size, left)
            left -= size
        now = max(now, out)
        starts.append(now)
        now += length
    return starts


def with_returns_apart(problem, trace):
    """Return the trace without forced returns, and the ticks that they take."""
    needs = required(problem, trace)
    absent = [sum(trace.size(trace.gaps[n]) for n in over) for over in trace.gaps_over()]
    tensors, taken = [], 0
    for number, (size, uses, leaves) in enumerate(trace.tensors):
        own = [gap for gap in trace.gaps if gap[0] == number] if leaves else []
        strait = own[-1][2] - 1 if own else 0
        if len(own) > 1 and absent[strait] - size < needs[strait]:
            _, before, after = own[-1]
            taken += problem.ticks(size, out=False)
            tensors.append((size, [use for use in uses if use <= before], leaves))
            tensors.append((size, [use for use in uses if use >= after], False))
        else:
            tensors.append((size, uses, leaves))
    return Trace(trace.operations, tensors), taken


# --- packed proofs -----------------------------------------------------------------------------


def unpack(text):
    """Return the JSON value in a packed proof."""
    try:
        stream = zlib.decompressobj()
        content = stream.decompress(base64.b64decode(text, validate=True), LONGEST_PROOF)
        if not stream.eof or stream.unused_data:
            raise ValueError("cut off, or too long")
        return json.loads(content)
    except (ValueError, TypeError, zlib.error) as error:
        raise WrongError(f"a proof is not base64 of compressed JSON: {error}") from None


# --- moving and running again together ----------------------------------------------------------

# What the place of a fact of each family is made of, after the span, boundary or window.
FAMILIES = {
    **dict.fromkeys(("available", "origin", "kept", "left", "returned", "runs", "returns"), 1),
    **dict.fromkeys(("memory", "outputs", "link", "out", "in"), 0),
    "inputs": 2,
}
# Sums of sizes are told apart up to so many units when room is rounded down to one.
FINEST_ROOM = 1 << 22


class Joint:
    """The facts about any execution, cut at moments of first runs (theory, "joint").

    A share is a tuple that begins with its letter in the theory, or the number that it is fixed at.
    Each state of a memory that is changed in place is a value by itself.
    """

    def __init__(self, problem, details):
        self.problem, self.network = problem, problem.network
        self._read_states()
        count = len(self.network.computations)
        moments = integers(details["moments"], "details.moments")
        # Moment 2o is the start of the first run of o, 2o + 1 its end; -1 is the beginning.
        self.at = [-1, *moments, 2 * count - 1]
        if any(b <= a for a, b in pairwise(self.at)):
            raise WrongError("details.moments must increase, and lie before the end")
        self.windows = len(moments) + 1
        self.spans = [(w, w + 1) for w in range(self.windows)]
        for i, span in enumerate(details["spans"]):
            begin, end = integers(span, f"details.spans[{i}]", 0, 2)
            if not begin + 2 <= end <= self.windows:
                raise WrongError(f"details.spans[{i}] must have several windows")
            self.spans.append((begin, end))
        if type(details["whole"]) is not bool:
            raise WrongError("details.whole must be true or false")
        if details["whole"] and problem.transfers != "atomic" and problem.offload:
            raise WrongError("details.whole is for atomic transfers")
        self.rooms = [self._room(t, details["whole"]) for t in range(1, self.windows)]

    def _read_states(self):
        """Note of each value who reads it, in which state, and until when it is of use."""
        network = self.network
        self.stored = [network.memory(v) for v in range(len(network.values))]
        self.size = [network.values[memory][0] for memory in self.stored]
        self.movable = [
            self.problem.offload and network.values[memory][1] and self.size[memory] > 0
            for memory in self.stored
        ]
        made = sorted(range(len(self.stored)), key=lambda v: (network.writer[v], v))
        self.reads = []
        for number, each in enumerate(network.computations):
            found = set()
            for memory in {self.stored[value] for value in each["reads"]}:
                states = [v for v in made if self.stored[v] == memory]
                found.add([v for v in states if v == memory or network.writer[v] < number][-1])
            self.reads.append(found)
        self.latest, self.last_reader = [-1] * len(self.stored), [-1] * len(self.stored)
        for number in reversed(range(len(network.computations))):
            each, last = network.computations[number], number
            if each["repeatable"]:
                last = max([last, *(self.latest[value] for value in each["writes"])])
            for value in self.reads[number]:
                self.latest[value] = max(self.latest[value], last)
                self.last_reader[value] = max(self.last_reader[value], number)

    def _again(self, value):
        maker = self.network.writer[value]
        return maker >= 0 and self.network.computations[maker]["repeatable"]

    def _room(self, boundary, whole):
        """Return rooms by family, with the values in no need of it, and the too large values."""
        running = self.at[boundary] // 2
        each, own = self.network.computations[running], self.reads[running]
        read = sum(self.size[value] for value in own)
        writes = set(each["writes"])
        outputs = {value for value in writes if self.stored[value] == value}
        beside = each["workspace"] + sum(self.size[value] for value in outputs)
        if each["lean"] is not None:
            beside = min(beside, each["lean"])
        rows = {"memory": (self.problem.memory - beside - read, own | writes)}
        if self.at[boundary] % 2 and outputs and each["lean"] is not None:
            least = min(each["workspace"], each["lean"])
            rows["outputs"] = (self.problem.memory - least - read, (own | writes) - outputs)
        large = frozenset()
        if whole:
            for family, (most, used) in rows.items():
                room, found = self._rounded(boundary, most, used)
                rows[family] = (room, used)
                large = found if family == "memory" else large
        return rows, large

    def _rounded(self, boundary, most, used):
        """Return the greatest sum of whole values within some room, and what is larger than it."""
        moment, held, others = self.at[boundary], 0, []
        for value, latest in enumerate(self.latest):
            if value in used or not 2 * self.network.writer[value] < moment <= 2 * latest:
                continue
            lasting = not self.movable[value] and not self._again(value)
            if lasting and 2 * self.last_reader[value] >= moment:
                held += self.size[value]
            else:
                others.append(value)
        if most < held:
            return most, frozenset()
        sizes, rest = [self.size[value] for value in others], most - held
        unit, fitting = math.gcd(*sizes), 0
        if unit and rest // unit > FINEST_ROOM:
            fitting = rest
        elif unit:
            sums = sums_up_to([size // unit for size in sizes], rest // unit)
            fitting = unit * (sums.bit_length() - 1)
        return held + fitting, frozenset(v for v in others if self.size[v] > rest)

    # Shares: a number where they are known, None where the theory has none.

    def present(self, boundary, value):
        """Return whether a value is on the device at a boundary; None before it is made."""
        moment = self.at[boundary]
        if 2 * self.network.writer[value] >= moment:
            return None
        if boundary == 0 or value in self.reads[moment // 2]:
            return 1
        return 0 if value in self.rooms[boundary - 1][1] else ("p", boundary, value)

    def there(self, span, value):
        """Return whether a value is on the device at some time in a span."""
        begin, end = self.spans[span]
        if self.present(begin, value) is None:
            return None
        first_runs = range((self.at[begin] + 1) // 2, (self.at[end] + 1) // 2)
        return 1 if any(value in self.reads[run] for run in first_runs) else ("a", span, value)

    def single(self, span):
        """Return whether a span is a window that is one first run."""
        begin, end = self.spans[span]
        return self.at[begin] % 2 == 0 and end == begin + 1 and self.at[end] == self.at[begin] + 1

    def runs(self, span, computation):
        """Return whether a computation runs again in a span."""
        if computation < 0 or not self.network.computations[computation]["repeatable"]:
            return 0
        over = 2 * computation < self.at[self.spans[span][0]]
        return 0 if self.single(span) or not over else ("r", span, computation)

    def back(self, span, value):
        """Return whether a value comes back from the host in a span."""
        return ("q", span, value) if self.movable[value] else 0

    def left(self, boundary, value):
        """Return whether a value has left for the host by a boundary."""
        writer = self.network.writer[self.stored[value]]
        if not self.movable[value] or 2 * writer + 1 >= self.at[boundary] or boundary == 0:
            return 0
        return ("h", boundary, value)

    # Facts: terms that add up to something that is at least 0.

    def fact(self, family, where, about):
        """Return the terms of a fact, as pairs of a share and a factor; None if there is none."""
        # Of what is named, the first may be a computation, all else are values.
        counts = [len(self.stored)] * len(about)
        if family in ("inputs", "runs"):
            counts[0] = len(self.network.computations)
        known = all(n < count for n, count in zip(about, counts, strict=True))
        if where >= len(self.spans) or not known:
            return None
        begin, end = self.spans[where]
        if family in ("runs", "returns"):
            share = self.runs if family == "runs" else self.back
            unmade = family == "returns" and self.present(begin, about[0]) is None
            known = not unmade and share(where, about[0]) != 0
            windows = [(share(window, about[0]), 1) for window in range(begin, end)]
            return [*windows, (share(where, about[0]), -1)] if known else None
        if family == "inputs":
            computation, value = about
            run = self.runs(where, computation)
            known = value in self.reads[computation] and run != 0
            return [(self.there(where, value), 1), (run, -1)] if known else None
        (value,) = about
        maker = self.network.writer[value]
        if family in ("available", "origin"):
            come = self.back(where, value) if family == "available" else self.left(begin, value)
            terms = [(self.present(begin, value), 1), (come, 1), (self.runs(where, maker), 1)]
            return [*terms, (self.there(where, value), -1)]
        if family == "kept":
            there = self.there(where, value)
            inside = end < self.windows
            return [(there, 1), (self.present(end, value), -1)] if inside else None
        if family == "returned":
            known = self.movable[value] and self.present(begin, value) is not None
            return [(self.left(end, value), 1), (self.back(where, value), -1)] if known else None
        return self._left_fact(where, value)

    def _left_fact(self, span, value):
        begin, end = self.spans[span]
        writer, memory = self.network.writer, self.stored[value]
        order = (writer[value], value)
        states = [
            v
            for v, stored in enumerate(self.stored)
            if stored == memory and (v == memory or (writer[v], v) <= order)
        ]
        states = [v for v in states if self.present(begin, v) is not None]
        made = 2 * writer[value] < self.at[begin]
        if not states or (made and value not in states) or not self.left(end, value):
            return None
        terms = [(self.present(begin, v), 1) for v in states]
        terms += [(self.left(begin, value), 1), (self.runs(span, writer[memory]), 1)]
        return [*terms, (self.left(end, value), -1)]

    # What multipliers prove.

    def bound(self, over, rows, fixed):
        """Return the ticks that multipliers prove, where some runs again are known."""
        total, prices = Fraction(0), {}

        def add(share, price):
            nonlocal total
            if isinstance(share, tuple):
                prices[share] = prices.get(share, 0) + price
            else:
                total += share * price

        links = ("out", "in") if self.problem.duplex else ("link",)
        for (family, where, about), weight in rows.items():
            if family in ("link", "out", "in"):
                if family not in links or where >= self.windows:
                    raise WrongError(f"multipliers name {family} {where}, which is no fact")
            elif family in ("memory", "outputs"):
                total -= self._weigh_memory(family, where, Fraction(weight, over), add)
            else:
                terms = self.fact(family, where, about)
                if terms is None or any(share is None for share, _ in terms):
                    raise WrongError(f"multipliers name {family} {where} {about}, which is no fact")
                for share, factor in terms:
                    add(share, -factor * Fraction(weight, over))
        for window in range(self.windows):
            self._weigh_window(window, over, rows, add)
        for shares, (fewest, most) in fixed.items():
            costs = sorted(prices.pop(share, 0) for share in shares)
            total += sum(costs[: min(max(sum(cost < 0 for cost in costs), fewest), most)])
        return total + _least(prices)

    def _weigh_memory(self, family, boundary, weight, add):
        """Price the values that take room at a moment; return the price of the room itself."""
        known = self.rooms[boundary - 1][0] if 1 <= boundary < self.windows else {}
        if family not in known:
            raise WrongError(f"multipliers name {family} {boundary}, which is no fact")
        room, used = known[family]
        limit = max(self.problem.memory, 1)
        for value in range(len(self.stored)):
            # What is of no further use may be thrown away.
            if value not in used and 2 * self.latest[value] >= self.at[boundary]:
                add(self.present(boundary, value) or 0, weight * self.size[value] / limit)
        return weight * room / limit

    def _weigh_window(self, window, over, rows, add):
        """Price the time of a window: its runs, and the bytes that the link moves."""
        names = ("out", "in") if self.problem.duplex else ("link", "link")
        parts = [Fraction(rows.get((name, window, ()), 0), over) for name in names]
        runs = 1 - sum(parts[: 2 if self.problem.duplex else 1])
        if runs < 0 and not self.single(window):
            raise WrongError(f"multipliers of the link come to more than 1 in window {window}")
        first = range((self.at[window] + 1) // 2, (self.at[window + 1] + 1) // 2)
        computations = self.network.computations
        add(1, runs * sum(computations[run]["duration"] for run in first))
        for number, each in enumerate(computations):
            add(self.runs(window, number), runs * each["duration"])
        for value, size in enumerate(self.size):
            if self.movable[value]:
                away = parts[0] * size / self.problem.out
                add(self.left(window + 1, value), away)
                add(self.left(window, value), -away)
                add(self.back(window, value), parts[1] * size / self.problem.back)


def _least(prices):
    """Return the least that shares from 0 to 1 can cost; what has left stays so."""
    total, left = 0, {}
    for (kind, where, about), price in prices.items():
        if kind == "h":
            left.setdefault(about, {})[where] = price
        else:
            total += min(price, 0)
    for by_boundary in left.values():
        now = best = 0
        for boundary in sorted(by_boundary, reverse=True):
            now += by_boundary[boundary]
            best = min(best, now)
        total += best
    return total


def _joint_weights(document):
    take(document, "multipliers", ("over",), tuple(FAMILIES))
    over, rows = integer(document["over"], "over", 1), {}
    for family, parts in FAMILIES.items():
        previous = []
        for item in document.get(family, []):
            *place, weight = integers(item, family, 0, parts + 2)
            if weight < 1 or place <= previous:
                raise WrongError(f"multipliers {family} must be positive, at increasing places")
            rows[family, place[0], tuple(place[1:])] = weight
            previous = place
    return over, rows


def _joint_cases(facts, node, fixed):
    """Return the decisions of two cases: more run again than a node says, or no more do."""
    span, *rest = integers(node, "tree")
    most, several = (rest[0], rest[1:]) if len(rest) > 2 else (0, rest)
    known = len(rest) not in (0, 2) and span < len(facts.spans) and several == sorted(set(several))
    known = known and several[-1] < len(facts.network.computations)
    shares = tuple(facts.runs(span, each) for each in several) if known else (0,)
    low, high = fixed.get(shares, (0, len(shares)))
    others = {share for each in fixed if each != shares for share in each} & set(shares)
    if others or not low <= most < high or not all(isinstance(share, tuple) for share in shares):
        raise WrongError(f"the tree of a proof cannot decide {node}")
    return {**fixed, shares: (most + 1, high)}, {**fixed, shares: (low, most)}


def joint(problem, details):
    """Return the bound on any execution that multipliers, or a tree of cases, prove."""
    take(details, "details", ("moments", "spans", "whole", "proof"))
    facts, document = Joint(problem, details), unpack(details["proof"])
    if not isinstance(document, dict) or "tree" not in document:
        document = {"multipliers": [document], "tree": [0]}
    take(document, "proof", ("multipliers", "tree"))
    weights = [_joint_weights(each) for each in document["multipliers"]]
    nodes, waiting, worst = iter(document["tree"]), [{}], math.inf
    while waiting:
        fixed, node = waiting.pop(), next(nodes, None)
        if isinstance(node, list):
            waiting += _joint_cases(facts, node, fixed)
        elif type(node) is int and 0 <= node < len(weights):
            worst = min(worst, facts.bound(*weights[node], fixed))
        else:
            raise WrongError(f"the tree of a proof has no such node: {node!r:.40}")
    if next(nodes, None) is not None:
        raise WrongError("the tree of a proof has nodes that nothing leads to")
    return math.ceil(worst)


def proved(problem, method, details):
    """Return the bound that a method proves for a problem in which everything runs once."""
    trace, atomic, simplex = problem.trace, problem.transfers == "atomic", not problem.duplex
    if method.startswith("fractional-") and not atomic and method != PIECES:
        raise WrongError(f"{method} is for atomic transfers")
    take(details, "details", ("smallest",) if "large" in method else ())
    if method in RULES:
        return RULES[method](problem, trace, required(problem, trace))
    if method == "prop3-subset-sum":
        if not atomic and not (simplex and problem.transfers == "interruptible"):
            raise WrongError(f"{method} does not hold for such transfers")
        return proposition_3(problem, trace, required(problem, trace, whole=True))
    if method == "fractional-subset-sum":
        return fractional(problem, trace, required(problem, trace, whole=True))
    smallest = integer(details["smallest"], "details.smallest", 1)
    rest, taken = trace, 0
    if method.endswith("-returns"):
        if not simplex:
            raise WrongError(f"{method} is for simplex links")
        rest, taken = with_returns_apart(problem, trace)
    return taken + fractional(problem, rest, required_of_large(problem, rest, smallest))


JOINT, PIECES = "joint-lp", "fractional-pieces"
RULES = {"prop3": proposition_3, "fractional": fractional, PIECES: in_pieces}
KNOWN = (*RULES, "prop3-subset-sum", "fractional-subset-sum")
KNOWN += ("fractional-large-tensors", "fractional-large-tensors-returns")


def check_bound(problem, bound):
    """Check one bound; raise if it is wrong, or of a kind that is not known here."""
    take(bound, "bound", ("method", "value", "evidence", "details"))
    value, method = integer(bound["value"], "bound.value"), bound["method"]
    if bound["evidence"] not in ("proved", "cross-attested", "attested"):
        raise WrongError(f"evidence of {method} is {bound['evidence']!r:.40}")
    plain = problem.recompute == "none" and problem.minimise == "time"
    if method in KNOWN and not plain:
        raise WrongError(f"{method} is no bound where computations may run again")
    if method == JOINT and (problem.recompute == "none" or problem.minimise != "time"):
        raise WrongError(f"{method} is a bound on time where computations may run again")
    if bound["evidence"] != "proved":
        raise UnknownError(f"{method}: the word of {bound['details'].get('solver', 'a solver')}")
    if method == JOINT:
        most = joint(problem, bound["details"])
        if value > most:
            raise WrongError(f"{method} claims {value}, but proves {most}")
        return
    if method not in KNOWN:
        raise UnknownError(f"{method}: a kind of bound that needs a search, or another argument")
    if problem.memory < scarcest(problem)[1]:
        raise UnknownError(f"{method}: bounds on problems without any schedule")
    most = proved(problem, method, bound["details"])
    if value != most:
        raise WrongError(f"{method} claims {value}, but proves {most}")


def least_memories(trace):
    """Return the bytes at the start, and those each operation needs if all else has left."""
    needs = trace.demands()
    for operation, over in enumerate(trace.gaps_over()):
        needs[operation] -= sum(trace.size(trace.gaps[number]) for number in over)
    start = sum(size for size, uses, _ in trace.tensors if uses[0] < 0)
    return start, needs


REQUIRED = ("format", "version", "problem", "problem_sha256", "status", "objective", "lower_bound")
REQUIRED += ("gap", "bounds", "schedule", "infeasibility", "method", "settings", "versions")
REQUIRED += ("digest",)
LACK = ("operation", "name", "needed", "lacking")


class Check:
    """The findings: what holds, what is wrong, what is not known here."""

    def __init__(self):
        self.holds, self.wrong, self.unknown = [], [], []

    def run(self, what, function, *arguments):
        """Call a function, note how it ends, and return what it returns."""
        try:
            found = function(*arguments)
        except WrongError as error:
            self.wrong.append(f"{what}: {error}")
        except UnknownError as error:
            self.unknown.append(f"{what}: {error}")
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            self.wrong.append(f"{what}: not as the format says ({type(error).__name__}: {error})")
        else:
            self.holds.append(what)
            return found
        return None

    @property
    def exit_code(self):
        """Return 0 if all holds, 1 if something is wrong, 3 if something is not known."""
        return 1 if self.wrong else 3 if self.unknown else 0


def check(document):
    """Return the findings about a certificate's document."""
    found = Check()
    found.run("document", _check_document, document)
    if found.wrong:
        return found
    problem = found.run("problem", Problem, document["problem"])
    if problem is None:
        return found
    trace = problem.trace
    if document.get("execution") is not None:
        trace = found.run("execution", check_execution, problem, document["execution"])
    elif problem.recompute != "none" and document["schedule"] is not None:
        found.wrong.append("execution: missing, although computations may run again")
        return found
    result = None
    if document["schedule"] is not None and trace is not None:
        result = found.run("schedule", check_schedule, problem, trace, document["schedule"])
    for bound in document["bounds"]:
        found.run(f"bound {bound.get('method')} {bound.get('value')}", check_bound, problem, bound)
    found.run("conclusion", _check_conclusion, document, problem, result)
    others = {"placement": "addresses", "robust": "uncertain times"}
    found.unknown += [f"{part}: {what}" for part, what in others.items() if part in document]
    return found


def _check_document(document):
    take(document, "certificate", REQUIRED, ("execution", "placement", "robust"))
    version = integer(document["version"], "version")
    if (document["format"], version) != ("offcert-certificate", 1):
        raise WrongError("this program reads version 1 of offcert-certificate")
    text(document["method"], "method")
    for name in ("settings", "versions"):
        if not isinstance(document[name], dict):
            raise WrongError(f"{name} must be an object")
    if sha256(document["problem"]) != document["problem_sha256"]:
        raise WrongError("problem_sha256 is not the problem's hash")
    rest = {name: value for name, value in document.items() if name != "digest"}
    if sha256(rest) != document["digest"]:
        raise WrongError("digest is not that of the other fields")


def _check_conclusion(document, problem, result):
    """Check objective, lower bound, gap and status against schedule and bounds."""
    objective = document["objective"]
    if (objective is None) != (document["schedule"] is None):
        raise WrongError("objective and schedule must be there together")
    if result is not None:
        value = result[0] if problem.minimise == "time" else result[1]
        # Memory that is minimised is what the schedule is given: no less than it takes.
        if objective != value and (problem.minimise == "time" or objective < value):
            raise WrongError(f"objective is {objective}, but the schedule's is {value}")
        if problem.deadline is not None and result[0] > problem.deadline:
            raise WrongError(f"the schedule takes {result[0]} ticks, more than {problem.deadline}")
    best = max((bound["value"] for bound in document["bounds"]), default=0)
    if document["lower_bound"] != best:
        raise WrongError(f"lower_bound is {document['lower_bound']}, but the largest is {best}")
    gap = document["gap"]
    expected = None if objective is None else Fraction(objective - best, max(objective, 1))
    if expected is not None and expected < 0:
        raise WrongError(f"the lower bound {best} is above the objective {objective}")
    if (None if gap is None else rational(gap, "gap")) != expected:
        raise WrongError(f"gap is {gap}, but should be {expected}")
    _check_status(document, problem, objective, best)


def _check_status(document, problem, objective, best):
    status, lack = document["status"], document["infeasibility"]
    if (lack is not None) != (status == "INFEASIBLE"):
        raise WrongError("status and infeasibility disagree")
    limit, needed, where = scarcest(problem)
    if limit is not None and needed > limit and (lack is None or document["bounds"]):
        raise WrongError("no schedule exists, and the document must say so and hold no bounds")
    if lack is not None:
        _check_infeasible(document, limit, needed, where)
    elif objective is None:
        if status != "UNKNOWN":
            raise WrongError(f"status is {status} without a schedule")
    elif status != ("OPTIMAL" if objective == best else "FEASIBLE"):
        raise WrongError(f"status is {status} with objective {objective} and bound {best}")


def scarcest(problem):
    """Return the limit, or None, the least need, and the operation, or -1; bytes or ticks."""
    if problem.minimise == "memory":
        return problem.deadline, problem.trace.computing, -1
    if problem.recompute == "none":
        start, needs = least_memories(problem.trace)
    else:
        network, needs = problem.network, []
        sizes, read = [size for size, _, _ in network.values], set()
        for each in network.computations:
            made = sum(sizes[v] for v in each["writes"] if network.values[v][2] is None)
            beside = each["workspace"] + made
            beside = beside if each["lean"] is None else min(beside, each["lean"])
            needs.append(beside + sum(sizes[v] for v in each["reads"]))
            read |= {network.memory(v) for v in each["reads"]}
        start = sum(sizes[v] for v in read if network.writer[v] < 0)
    needed = max(start, *needs)
    return problem.memory, needed, -1 if start == needed else needs.index(needed)


def _check_infeasible(document, limit, needed, where):
    lack = take(document["infeasibility"], "infeasibility", LACK)
    if document["schedule"] is not None or document["bounds"] or limit is None:
        raise WrongError("there is a schedule, a bound or no limit, although nothing is feasible")
    alone = needed <= limit and lack["name"] == "every execution"
    if alone and lack["needed"] - lack["lacking"] == limit:
        raise UnknownError("why nothing can be executed where computations may run again")
    said = (lack["operation"], lack["needed"], lack["lacking"])
    if needed <= limit or said != (where, needed, needed - limit):
        raise WrongError(f"infeasibility must say that {needed} is needed at {where}, if it lacks")


def main(arguments):
    """Check the files that are named; return the exit code."""
    if not arguments:
        print(__doc__)
        return 2
    code = 0
    for path in arguments:
        try:
            document = read_document(path)
        except (OSError, ValueError, RecursionError) as error:
            print(f"{path}: cannot be read: {error}")
            return 2
        found = check(document)
        said = {"holds": found.holds, "WRONG": found.wrong, "not known here": found.unknown}
        for word, lines in said.items():
            for line in lines:
                print(f"{path}: {word}: {line}")
        code = max(code, found.exit_code, key=(0, 3, 2, 1).index)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
