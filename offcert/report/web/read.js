"use strict";
// What the page shows of a certificate or a problem that is dropped into it: the same view that
// offcert.report.page_views makes, but for what a verification found. Nothing is verified here.
const reading = (() => {
  const LONGEST = 80, NEAR = 5;
  const need = (holds, said) => { if (!holds) throw new Error(said); };
  // No name rules what is around it.
  const clean = text => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
  const cut = (text, longest = LONGEST) => { const all = clean(text); return all.length <= longest ? all : all.slice(0, longest - 3) + "..."; };
  const grouped = number => String(number).replace(/\B(?=(\d{3})+$)/g, ",");
  const counted = (number, what) => `${grouped(number)} ${what}${number === 1 ? "" : "s"}`;

  // As Python rounds: ties go to the even digit.
  const fixed = (value, digits) => {
    const scaled = value * 10 ** digits, low = Math.floor(scaled);
    return scaled - low === 0.5 && low % 2 === 0 ? (low / 10 ** digits).toFixed(digits) : value.toFixed(digits);
  };
  const decimal = (number, unit, digits, beside) => {
    const same = () => beside !== undefined && beside !== number && fixed(number / unit, digits) === fixed(beside / unit, digits);
    while (same() && digits < 13) digits++;
    return fixed(number / unit, digits);
  };
  const sizeText = (bytes, units, beside) => {
    if (units.size !== "B") return String(bytes);
    const found = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].find(e => bytes >= e[0]);
    return found ? `${decimal(bytes, found[0], 2, beside)} ${found[1]}` : `${bytes} B`;
  };
  const timeText = (ticks, units, beside) => {
    if (units.time !== "ns") return String(ticks);
    const found = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(e => ticks >= e[0]);
    return found ? `${decimal(ticks, found[0], 3, beside)} ${found[1]}` : `${ticks} ns`;
  };
  const rational = text => {
    const [above, below] = String(text).split("/").map(Number);
    return below === undefined ? above : above / below;
  };

  // Operations and tensors, as docs/formats/problem.md defines them of each kind of network.
  const ofChain = chain => {
    const stages = chain.forward.length, end = 2 * stages - 1, operations = [], tensors = [];
    for (let i = 0; i < stages; i++) operations.push({name: `F${i}`, duration: chain.forward[i], workspace: chain.forward_workspace[i]});
    for (let i = stages - 1; i >= 0; i--) operations.push({name: `B${i}`, duration: chain.backward[i], workspace: chain.backward_workspace[i]});
    const uses = (...given) => [...new Set(given)].sort((a, b) => a - b);
    for (let i = 0; i <= stages; i++)
      tensors.push({name: `x${i}`, size: chain.activation[i], uses: uses(i - 1, ...(i < stages ? [i, end - i] : []), ...(i ? [end - i + 1] : []))});
    for (let i = stages; i >= 0; i--)
      tensors.push({name: `y${i}`, size: chain.gradient[i], uses: uses(...(i < stages ? [end - i] : []), ...(i ? [end - i + 1] : []))});
    return {operations, tensors};
  };
  const ofCheckpointChain = chain => {
    const stages = chain.forward.length, values = [], computations = [];
    const add = (name, size) => values.push({name, size, evictable: name[0] !== "d"});
    chain.output.forEach((size, i) => add(`a${i}`, size));
    chain.saved.forEach((size, i) => add(`e${i}`, size - chain.output[i + 1]));
    chain.gradient.forEach((size, i) => add(`d${i}`, size));
    for (let i = 0; i < stages; i++)
      computations.push({name: `F${i}`, duration: chain.forward[i], workspace: chain.forward_workspace[i],
        reads: [i], writes: [i + 1, stages + 1 + i], repeatable: true});
    for (let i = stages - 1; i >= 0; i--) {
      const top = i === stages - 1, gradient = 2 * stages + 1 + i;
      computations.push({name: `B${i}`, duration: chain.backward[i], workspace: chain.backward_workspace[i], of: [i],
        reads: [i, i + 1, stages + 1 + i, ...(top ? [] : [gradient + 1])], writes: top ? [gradient, gradient + 1] : [gradient], repeatable: false});
    }
    return {computations, values};
  };
  const ofNetwork = ({computations, values}) => {
    const writer = values.map(() => -1), uses = new Map();
    computations.forEach((each, number) => each.writes.forEach(value => { writer[value] = number; }));
    const memory = value => values[value].base ?? value;
    values.forEach((value, number) => { if (value.base === undefined && writer[number] < 0) uses.set(number, [-1]); });
    computations.forEach((each, number) => {
      const holds = each.holds || [];
      for (const value of [...each.reads, ...holds]) {
        const there = uses.has(memory(value)) && (each.reads.includes(value) || writer[value] < number);
        if (there) uses.get(memory(value)).push(number);
      }
      for (const value of each.writes) {
        if (memory(value) === value) uses.set(value, [number]); else uses.get(memory(value)).push(number);
      }
    });
    const there = [...uses.keys()].filter(value => uses.get(value).length > 1 || uses.get(value)[0] >= 0);
    there.sort((a, b) => writer[a] - writer[b] || a - b);
    const ends = value => [Math.min(...uses.get(value)), Math.max(...uses.get(value))];
    return {operations: computations, tensors: there.map(v => ({name: values[v].name, size: values[v].size, uses: ends(v)}))};
  };
  const networkOf = problem => problem.checkpoint_chain ? ofCheckpointChain(problem.checkpoint_chain) : problem.network;
  const traceOf = problem => {
    if (problem.trace) return problem.trace;
    if (problem.chain) return ofChain(problem.chain);
    const network = networkOf(problem);
    need(network, "it has no network");
    return ofNetwork(network);
  };

  const sum = numbers => numbers.reduce((a, b) => a + b, 0);
  const largestOf = numbers => numbers.reduce((a, b) => Math.max(a, b), 0);
  // The first operation of the backward pass, by names or by what a network says.
  const turn = (problem, operations) => {
    const named = operations.findIndex(each => each.name.startsWith("B:"));
    if (named >= 0) return named;
    // Chains of the first paper are networks of the second one, too.
    const network = networkOf(problem), half = Math.floor(operations.length / 2);
    if (!network) return half;
    const of = network.computations.findIndex(each => (each.of || []).length);
    const once = network.computations.findLastIndex(each => each.repeatable) + 1;
    return of >= 0 ? of : once < operations.length ? once : half;
  };
  // The operations whose computation has run before.
  const again = (execution, plain) => {
    const seen = new Set();
    return (execution ? execution.runs : []).map(run => { const is = seen.has(run) || run >= plain; seen.add(run); return is; });
  };

  // Bytes on the device: when they change, and by how much, if nothing leaves.
  const changesOf = (trace, starts, ends) => {
    const found = [[0, 0]];
    for (const {size, uses} of trace.tensors)
      found.push([uses[0] < 0 ? 0 : starts[uses[0]], size], [ends[uses[uses.length - 1]], -size]);
    trace.operations.forEach((each, i) => found.push([starts[i], each.workspace], [ends[i], -each.workspace]));
    return found;
  };
  const joined = changes => {
    const by = new Map();
    for (const [time, size] of changes) by.set(time, (by.get(time) || 0) + size);
    const times = [...by.keys()].sort((a, b) => a - b);
    let held = 0;
    return {times, sizes: times.map(time => held += by.get(time))};
  };

  // Whole transfers: the curve, and who is there from when to when.
  const whole = (trace, starts, ends, transfers) => {
    const changes = changesOf(trace, starts, ends), copied = new Map(), away = new Map();
    for (const each of transfers) if (each.kind === "offload") copied.set(each.tensor, each.end);
    const returns = transfers.filter(each => each.kind === "prefetch").sort((a, b) => a.gap[0] - b.gap[0]);
    for (const each of returns) {
      const {size} = trace.tensors[each.tensor], opened = each.gap[0] < 0 ? 0 : ends[each.gap[0]];
      const left = Math.max(opened, copied.get(each.tensor) ?? opened);
      changes.push([left, -size], [each.start, size]);
      away.set(each.tensor, [...(away.get(each.tensor) || []), [left, each.start]]);
    }
    const inside = {name: [], size: [], from: [], to: []};
    const add = (name, size, from, to) => { inside.name.push(name); inside.size.push(size); inside.from.push(from); inside.to.push(to); };
    trace.tensors.forEach(({name, size, uses}, number) => {
      if (!size) return;
      let from = uses[0] < 0 ? 0 : starts[uses[0]];
      const called = stay => stay ? `${name} (back ${stay})` : name, absent = away.get(number) || [];
      absent.forEach(([left, back], stay) => { add(called(stay), size, from, left); from = back; });
      add(called(absent.length), size, from, ends[uses[uses.length - 1]]);
    });
    trace.operations.forEach((each, i) => each.workspace && add(`workspace of ${each.name}`, each.workspace, starts[i], ends[i]));
    return {line: {slanted: false, ...joined(changes)}, inside};
  };

  // Transfers in pieces: bytes leave and return evenly while a piece moves.
  const fluid = (trace, starts, ends, pieces) => {
    const moved = (list, time) => sum(list.map(p => time >= p.end ? p.size : time <= p.start ? 0 : p.size * (time - p.start) / (p.end - p.start)));
    const corners = new Set([0, ...starts, ...ends, ...pieces.flatMap(p => [p.start, p.end])]), gaps = new Map();
    for (const piece of pieces) if (piece.kind === "prefetch") {
      const key = `${piece.tensor} ${piece.gap}`;
      if (!gaps.has(key)) gaps.set(key, {tensor: piece.tensor, opened: piece.gap[0] < 0 ? 0 : ends[piece.gap[0]], closed: starts[piece.gap[1]], back: []});
      gaps.get(key).back.push(piece);
    }
    for (const gap of gaps.values()) {
      gap.out = pieces.filter(p => p.kind === "offload" && p.tensor === gap.tensor).sort((a, b) => a.start - b.start);
      gap.most = sum(gap.back.map(p => p.size));
      // More is copied than leaves in this gap: where that begins there is a corner.
      let copied = 0;
      for (const p of gap.out) {
        if (copied < gap.most && gap.most < copied + p.size) corners.add(p.start + (gap.most - copied) / p.size * (p.end - p.start));
        copied += p.size;
      }
    }
    const {times, sizes} = joined(changesOf(trace, starts, ends)), line = {slanted: true, times: [], sizes: []};
    const sorted = [...corners].sort((a, b) => a - b);
    let place = 0;
    for (let i = 0; i + 1 < sorted.length; i++) {
      const [a, b] = [sorted[i], sorted[i + 1]];
      while (place + 1 < times.length && times[place + 1] <= a) place++;
      const open = [...gaps.values()].filter(gap => gap.opened <= a && b <= gap.closed);
      for (const t of [a, b]) {
        line.times.push(t);
        line.sizes.push(sizes[place] - sum(open.map(gap => Math.min(moved(gap.out, t), gap.most) - moved(gap.back, t))));
      }
    }
    return {line, inside: null};
  };

  // Bars by rows, by columns; names each once.
  const drawn = (problem, trace, span, largest, bars, inside) => {
    const rows = problem.link === "duplex" ? ["device", "link", "link back"] : ["device", "link"], names = new Map();
    const number = name => names.get(name) ?? (names.set(name, names.size), names.size - 1);
    if (inside) inside.name = inside.name.map(name => number(cut(name)));
    const columns = rows.map(() => ({start: [], end: [], look: [], name: []}));
    for (const bar of [...bars].sort((a, b) => a.start - b.start)) {
      const column = columns[rows.indexOf(bar.row)];
      column.start.push(bar.start); column.end.push(bar.end); column.look.push(bar.look); column.name.push(number(cut(bar.name)));
    }
    const scale = (all, most, plain) => all.find(e => most >= 2 * e[0]) || plain;
    const time = problem.units.time === "ns" ? scale([[1e9, "s"], [1e6, "ms"], [1e3, "µs"]], span, [1, "ns"]) : [1, "ticks"];
    const size = problem.units.size === "B" ? scale([[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]], largest, [1, "B"]) : [1, "units"];
    return {span, rows, bars: columns, inside, names: [...names.keys()], time, size};
  };
  const barsOf = (problem, trace, starts, ends, passes, moves, looks) => {
    const bars = trace.operations.map((each, i) => ({row: "device", start: starts[i], end: ends[i], look: looks.indexOf(passes[i]),
      name: passes[i] === "run again" ? each.name.replace(/ \(run [0-9]+\)$/, "") : each.name}));
    for (const move of moves) {
      const back = problem.link === "duplex" && move.kind === "prefetch";
      bars.push({row: back ? "link back" : "link", start: move.start, end: move.end, look: looks.indexOf(move.kind), name: trace.tensors[move.tensor].name});
    }
    return bars;
  };

  // A promise: rounded up.
  const percent = part => { const digits = part >= 10 ? 0 : part >= 1 ? 1 : 2; return `${fixed(Math.ceil(part * 10 ** digits) / 10 ** digits, digits)} %`; };
  const lackText = (lack, units) => {
    const called = cut(lack.name, 100);
    if (lack.operation === -1 && lack.name === "the computing")
      return `${called} takes ${timeText(lack.needed, units)} however much memory there is, ${timeText(lack.lacking, units)} too long`;
    const [needed, lacking] = [sizeText(lack.needed, units), sizeText(lack.lacking, units)];
    return lack.operation === -1 && lack.name === "every execution" ? `${called} takes ${needed} or more at some moment, ${lacking} more than there is`
      : `${called} needs ${needed} even when all else has left, ${lacking} more than there is`;
  };
  const saidOf = (document, proved) => {
    const {problem, objective} = document;
    if (document.infeasibility) return ["bad", `There is no plan: ${lackText(document.infeasibility, problem.units)}`];
    if (objective === null) return ["open", "No plan was found; whether there is one is not known"];
    if (objective === proved) return ["good", `The ${problem.minimise === "memory" ? "smallest" : "fastest"} plan there is: proved`];
    const gap = 100 * (objective - proved) / Math.max(1, objective), tone = proved && gap <= NEAR ? "good" : "open";
    const away = proved ? `at most ${percent(gap)} from the best possible` : "how far from the best possible is not known";
    const claimed = document.lower_bound === objective ? "; solvers say that none is better, which is not proved" : "";
    return [tone, `The best plan found; ${away}${claimed}`];
  };
  const tile = (name, value, note = "", part = null) => ({name, value, note, part});

  const certificateView = (name, document, looks) => {
    const {problem, schedule, execution} = document, {units} = problem, plain = traceOf(problem);
    const trace = execution ? execution.trace : plain, computing = sum(plain.operations.map(each => each.duration));
    const text = problem.minimise === "memory" ? sizeText : timeText;
    const bounds = document.bounds, best = of => largestOf(of.map(each => each.value));
    const proved = best(bounds.filter(each => each.evidence === "proved")), [tone, said] = saidOf(document, proved);
    const middle = turn(problem, plain.operations), repeated = again(execution, plain.operations.length);
    const passes = trace.operations.map((_, i) => repeated[i] ? "run again" : (execution ? execution.runs[i] : i) < middle ? "forward" : "backward");
    const operations = schedule ? schedule.operations : [], starts = operations.map(e => e.start), ends = operations.map(e => e.end);
    const pieces = schedule && schedule.pieces && schedule.pieces.map(p => ({...p, start: rational(p.start), end: rational(p.end), size: rational(p.size)}));
    const moves = pieces || (schedule ? schedule.transfers : []);
    const {line, inside} = !schedule ? {line: null, inside: null} : pieces ? fluid(trace, starts, ends, pieces) : whole(trace, starts, ends, moves);
    const peak = peakOf(plain), makespan = largestOf(ends);
    const tiles = [];
    if (schedule) {
      tiles.push(tile("step", timeText(makespan, units), `${fixed(makespan / Math.max(1, computing), 3)} times the computing time`));
      const most = largestOf(line.sizes);
      tiles.push(tile("memory", sizeText(Math.round(most), units),
        `${fixed(100 * most / Math.max(1, peak), 0)} % of the ${sizeText(peak, units)} without a plan`, most / Math.max(1, peak)));
      tiles.push(tile("leave the device", counted(new Set(moves.filter(m => m.kind === "prefetch").map(m => m.tensor)).size, "tensor")));
    } else tiles.push(tile("memory limit", sizeText(problem.memory, units)), tile("needed without a plan", sizeText(peak, units)));
    if (execution) {
      const runs = repeated.map((is, i) => is ? trace.operations[i].duration : -1).filter(d => d >= 0);
      tiles.push(tile("run again", counted(runs.length, "operation"), `${timeText(sum(runs), units)} of computing`));
    }
    const ranks = ["proved", "cross-attested", "attested"], inTime = problem.minimise !== "memory";
    const span = Math.max(1, makespan || 1, inTime ? best(bounds) : 0);
    return {
      choice: `${name}: ${sizeText(problem.memory, units)}`, title: cut(problem.name, 120), tiles,
      status: {tone, said: `${said} (says the file)`, mark: "open", checked: "Not verified for this page"},
      known: "A page cannot verify a certificate: offcert verify does, and offcert report shows what it found.",
      facts: [["operations", grouped(trace.operations.length)], ["memory limit", sizeText(problem.memory, units)],
        ["computing time", timeText(computing, units)], ["found by", cut(document.method)]],
      bounds: [...bounds].sort((a, b) => b.value - a.value || ranks.indexOf(a.evidence) - ranks.indexOf(b.evidence)).map(bound => ({
        value: text(bound.value, units, document.objective ?? undefined), proved: bound.evidence === "proved", method: cut(bound.method),
        said: bound.evidence === "proved" ? "proved, says the certificate"
          : `${bound.evidence === "attested" ? "a solver says so" : "two solvers say so"} (${bound.evidence}), not proved`, finding: "not checked for this page"})),
      bound: inTime ? proved || null : null, limit: inTime ? problem.memory : document.objective ?? problem.memory, training: null,
      lines: line ? [{name: "on the device", ...line}] : [],
      ...drawn(problem, trace, span, Math.max(1, peakOf(trace)), barsOf(problem, trace, starts, ends, passes, schedule ? moves : [], looks).filter(bar => bar.start !== undefined), inside),
    };
  };

  // Everything runs once, one after the other, and stays.
  const joinedPlain = trace => {
    let now = 0;
    const starts = trace.operations.map(each => { const start = now; now += each.duration; return start; });
    const ends = starts.map((start, i) => start + trace.operations[i].duration);
    return {starts, ends, ...whole(trace, starts, ends, [])};
  };
  // The most that an operation needs, those of no duration too, which no curve shows.
  const peakOf = trace => {
    const steps = new Array(trace.operations.length + 1).fill(0);
    for (const {size, uses} of trace.tensors) { steps[Math.max(uses[0], 0)] += size; steps[uses[uses.length - 1] + 1] -= size; }
    let now = 0;
    return largestOf(trace.operations.map((each, i) => (now += steps[i]) + each.workspace));
  };

  const problemView = (name, problem, looks) => {
    const {units} = problem, trace = traceOf(problem), {starts, ends, line, inside} = joinedPlain(trace), peak = peakOf(trace);
    const middle = turn(problem, trace.operations), span = Math.max(1, largestOf(ends)), fits = peak <= problem.memory;
    const leaving = sum(trace.tensors.filter(t => t.uses.length > 1 && t.uses[t.uses.length - 1] > t.uses[0] + 1).map(t => t.size));
    const passes = trace.operations.map((_, i) => i < middle ? "forward" : "backward");
    const rate = rational(problem.bandwidth), away = Math.max(0, peak - problem.memory);
    return {
      choice: `${name}: ${sizeText(problem.memory, units)}`, title: cut(problem.name, 120), training: null,
      status: {tone: fits ? "good" : "open", mark: "", checked: "A problem: shown as it runs without a plan",
        said: fits ? "Fits without a plan" : `Needs ${sizeText(away, units)} more than the limit without a plan`},
      tiles: [tile("computing time", timeText(span, units)), tile("needed without a plan", sizeText(peak, units)),
        tile("memory limit", sizeText(problem.memory, units), `${fixed(100 * problem.memory / Math.max(1, peak), 0)} % of what is needed without a plan`, problem.memory / Math.max(1, peak)),
        tile("copying out what lacks", timeText(Math.ceil(away / rate), units), "by the link, if it did nothing else")],
      known: "", bound: null, limit: problem.memory, lines: [{name: "without a plan", ...line}],
      facts: [["operations", grouped(trace.operations.length)], ["tensors", grouped(trace.tensors.length)], ["link", problem.link], ["transfers", problem.transfers],
        ["tensors that wait", sizeText(leaving, units)]],
      bounds: [{value: timeText(span, units), proved: true, said: "by definition", method: "computing time", finding: "Everything has to run at least once. Better bounds are what offcert certify finds."}],
      ...drawn(problem, trace, span, Math.max(1, peak), barsOf(problem, trace, starts, ends, passes, [], looks), inside),
    };
  };

  const viewOf = (name, document, looks) => {
    const format = document && document.format;
    need(["offcert-certificate", "offcert-problem"].includes(format), format ? `it is an ${String(format).slice(0, 60)}; offcert report makes a page of reports of training and of what doctor printed` : "it has no format");
    need(document.version === 1, `its version is ${String(document.version).slice(0, 20)}, not 1`);
    return format === "offcert-problem" ? problemView(name, document, looks) : certificateView(name, document, looks);
  };
  return {viewOf};
})();
