"use strict";
// The page of offcert: one plan at a time, chosen by list, slider or curve. Texts go into the page
// as texts, never as HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = id => document.getElementById(id);
  const WIDTH = 1120, LABELS = 120, ROW = 30, MOST = 14;
  let view = null, gantt = null, memory = null, curve = null, held = null, lastFound = -1;

  const make = (tag, text, name) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (name) made.className = name;
    return made;
  };
  const fill = (table, rows) => {
    const body = at(table).querySelector("tbody");
    body.replaceChildren(...rows.map(cells => {
      const row = make("tr");
      row.append(...cells.map(cell => cell instanceof Node ? cell : make("td", cell)));
      return row;
    }));
  };
  const digits = (value, scale, unit) => `${Number((value / scale).toPrecision(5))} ${unit}`;
  // Axes have round numbers in the unit that is shown.
  const inUnits = bytes => bytes === null ? null : bytes / view.size[0];
  const ofAxis = (u, marks) => marks.map(value => `${Number(value.toPrecision(6))} ${view.size[1]}`);
  const time = ticks => digits(ticks, view.time[0], view.time[1]);
  const size = bytes => digits(bytes, view.size[0], view.size[1]);

  // The last place at which a sorted list is at most a value; -1 before all.
  const last = (sorted, value) => {
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= value) low = middle + 1; else high = middle;
    }
    return low - 1;
  };

  const barAt = (row, moment) => {
    const bars = view.bars[row], index = last(bars.start, moment);
    return index >= 0 && moment < bars.end[index] ? index : -1;
  };

  const told = (row, index) => {
    const bars = view.bars[row], look = data.looks[bars.look[index]];
    const name = view.names[bars.name[index]];
    const span = `${time(bars.start[index])} to ${time(bars.end[index])}`;
    return `${view.rows[row]}: ${look.name}${name ? " " + name : ""}, ${span}`;
  };

  const bytesAt = (line, moment) => {
    const index = last(line.times, moment);
    if (index < 0) return 0;
    if (!line.slanted || index + 1 >= line.times.length) return line.sizes[index];
    const [a, b] = [line.times[index], line.times[index + 1]];
    const part = b > a ? (moment - a) / (b - a) : 0;
    return line.sizes[index] + part * (line.sizes[index + 1] - line.sizes[index]);
  };

  const read = moment => {
    const sizes = view.lines.map(line => `${line.name} ${size(bytesAt(line, moment))}`);
    at("moment").textContent = `${time(moment)}: ${sizes.join(", ")}, limit ${size(view.limit)}`;
    const running = view.rows.map((_, row) => [row, barAt(row, moment)]).filter(e => e[1] >= 0);
    at("running").replaceChildren(...running.map(e => make("li", told(...e))));
    const inside = view.inside;
    if (!inside) { fill("inside", []); return; }
    const there = [];
    for (let i = 0; i < inside.from.length; i++)
      if (inside.from[i] <= moment && moment < inside.to[i]) there.push(i);
    there.sort((a, b) => inside.size[b] - inside.size[a]);
    const rows = there.slice(0, MOST).map(i => [view.names[inside.name[i]], size(inside.size[i])]);
    const rest = there.slice(MOST);
    const left = rest.reduce((sum, i) => sum + inside.size[i], 0);
    if (rest.length) rows.push([`${rest.length} more`, size(left)]);
    fill("inside", rows);
  };

  const zoom = (low, high) => {
    const span = Math.max(high - low, view.span / 1e6);
    const begin = Math.min(Math.max(low, 0), Math.max(view.span - span, 0));
    gantt.setScale("x", {min: begin, max: Math.min(begin + span, view.span)});
  };
  const scaled = factor => {
    const {min, max} = gantt.scales.x, middle = held ?? (min + max) / 2, half = (max - min) / 2;
    zoom(middle - half * factor, middle + half * factor);
  };

  const drawBars = u => {
    const g = u.ctx, {min, max} = u.scales.x, ratio = devicePixelRatio;
    const height = u.bbox.height / view.rows.length;
    g.save();
    g.beginPath(); g.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height); g.clip();
    g.textBaseline = "middle"; g.textAlign = "left"; g.font = `${11 * ratio}px system-ui, sans-serif`;
    view.bars.forEach((bars, row) => {
      const top = u.bbox.top + row * height + height * 0.1;
      let shown = -1;
      for (let i = Math.max(last(bars.start, min), 0); i < bars.start.length && bars.start[i] <= max; i++) {
        const left = u.valToPos(bars.start[i], "x", true), right = u.valToPos(bars.end[i], "x", true);
        // Bars of which a pixel holds many: one of them is enough.
        if (right <= shown + 0.5 && right - left < 1) continue;
        shown = right;
        const look = data.looks[bars.look[i]], wide = right - left;
        g.fillStyle = look.colour;
        g.fillRect(left, top, Math.max(wide - (wide > 4 ? 1 : 0), 0.7), height * 0.8);
        const name = view.names[bars.name[i]], room = Math.floor((wide / ratio - 6) / 6.3);
        if (name && room >= Math.min(name.length, 6)) {
          g.fillStyle = look.text;
          g.fillText(room < name.length ? name.slice(0, room - 1) + "…" : name, left + 4 * ratio, top + height * 0.4);
        }
      }
    });
    if (view.bound !== null) mark(u, u.valToPos(view.bound, "x", true), "#d55e00", [2, 3]);
    if (held !== null) mark(u, u.valToPos(held, "x", true), "#000000", []);
    g.restore();
  };
  const mark = (u, x, colour, dashes) => {
    u.ctx.strokeStyle = colour; u.ctx.lineWidth = 1.5 * devicePixelRatio; u.ctx.setLineDash(dashes);
    u.ctx.beginPath(); u.ctx.moveTo(x, u.bbox.top); u.ctx.lineTo(x, u.bbox.top + u.bbox.height); u.ctx.stroke();
  };

  const hold = moment => {
    held = moment;
    if (moment !== null) read(moment);
    gantt.redraw(false); memory.redraw(false);
  };
  const pointed = u => {
    if (held !== null || u.cursor.left < 0) return;
    read(u.posToVal(u.cursor.left, "x"));
  };
  let same = false;
  const together = u => {
    if (same || !gantt || !memory) return;
    same = true;
    const {min, max} = u.scales.x;
    for (const other of [gantt, memory]) if (other !== u) other.setScale("x", {min, max});
    same = false;
  };
  const common = (height, extra) => Object.assign({
    width: WIDTH, height, legend: {show: false}, padding: [6, 16, 0, 0],
    cursor: {sync: {key: "offcert", scales: ["x", null]}, drag: {x: true, y: false}, y: false, points: {show: false}},
  }, extra);
  const timeAxis = () => ({values: (u, marks) => marks.map(value => digits(value, view.time[0], "")),
    label: `time (${view.time[1]})`, labelSize: 18, labelFont: "12px system-ui, sans-serif", grid: {stroke: "#eeeeee"}});

  const clickable = u => u.over.addEventListener("click", event => {
    // A click that ends a drag is none.
    if (u.select.width > 0 && event.detail === 0) return;
    hold(u.posToVal(event.offsetX, "x"));
  });

  const drawPlan = () => {
    for (const each of [gantt, memory]) if (each) each.destroy();
    gantt = memory = null; held = null;
    const x = () => ({time: false, range: (u, low, high) => low === null ? [0, view.span] : [low, high]});
    const none = {show: false};
    gantt = new uPlot(common(view.rows.length * ROW + 14, {
      scales: {x: x(), y: {range: () => [0, 1]}},
      series: [{}, {show: true, stroke: "#00000000", points: {show: false}}],
      axes: [none, {size: LABELS, splits: () => view.rows.map((_, row) => 1 - (row + 0.5) / view.rows.length),
        values: () => view.rows, grid: none, ticks: none}],
      hooks: {draw: [drawBars], setCursor: [pointed], setScale: [(u, key) => key === "x" && together(u)], ready: [clickable]},
    }), [[0, view.span], [0, 0]], at("gantt"));
    const times = [...new Set(view.lines.flatMap(line => line.times).concat([0, view.span]))].sort((a, b) => a - b);
    const largest = Math.max(...view.lines.map(line => line.sizes.reduce((a, b) => Math.max(a, b), 0)), 1);
    const top = inUnits((view.limit >= largest && view.limit <= 3 * largest ? view.limit : largest) * 1.08);
    const stepped = uPlot.paths.stepped({align: 1}), linear = uPlot.paths.linear();
    memory = new uPlot(common(230, {
      scales: {x: x(), y: {range: () => [0, top]}},
      series: [{}, ...view.lines.map((line, number) => ({label: line.name, stroke: line.colour, width: 1.4,
        fill: number ? undefined : line.colour + "40", paths: line.slanted ? linear : stepped, points: {show: false}})),
        {label: "limit", stroke: "#000000", dash: [7, 4], width: 1.2, points: {show: false}}],
      axes: [timeAxis(), {size: LABELS, values: ofAxis, grid: {stroke: "#eeeeee"}}],
      hooks: {draw: [u => held !== null && mark(u, u.valToPos(held, "x", true), "#000000", [])],
        setCursor: [pointed], setScale: [(u, key) => key === "x" && together(u)], ready: [clickable]},
    }), [times, ...view.lines.map(line => times.map(t => inUnits(bytesAt(line, t)))), times.map(() => inUnits(view.limit))], at("memory"));
  };

  const group = () => data.groups.find(each => each.plans.includes(view.number));
  const drawCurve = () => {
    if (curve) { curve.destroy(); curve = null; }
    const known = group();
    at("curve-part").hidden = at("slide").hidden = !known || known.plans.length < 2;
    if (!known || known.plans.length < 2) return;
    at("slider").max = known.plans.length - 1;
    at("slider").value = known.plans.indexOf(view.number);
    at("limit").value = size(view.limit);
    const dot = u => {
      const x = u.valToPos(inUnits(view.limit), "x", true), value = known.best[known.plans.indexOf(view.number)];
      if (value === null) return;
      u.ctx.fillStyle = "#d55e00"; u.ctx.beginPath();
      u.ctx.arc(x, u.valToPos(value, "y", true), 6 * devicePixelRatio, 0, 7); u.ctx.fill();
    };
    const nearest = u => u.over.addEventListener("click", event => {
      const limit = u.posToVal(event.offsetX, "x") * view.size[0];
      const far = known.limits.map(each => Math.abs(each - limit));
      choose(known.plans[far.indexOf(Math.min(...far))]);
    });
    curve = new uPlot({
      width: WIDTH, height: 240, legend: {show: false}, padding: [10, 16, 0, 0], cursor: {drag: {x: false, y: false}, y: false},
      scales: {x: {time: false}, y: {range: (u, low, high) => [Math.min(low, 1), Math.max(high, 1.02) + 0.06 * Math.max(high - 1, 0.02)]}},
      series: [{}, {stroke: "#0072b2", width: 2, paths: uPlot.paths.stepped({align: 1}), points: {show: true, size: 7}},
        {stroke: "#0072b2", dash: [4, 4], width: 1.4, paths: uPlot.paths.stepped({align: -1}), points: {show: false}}],
      axes: [{values: ofAxis}, {size: LABELS, labelFont: "12px system-ui, sans-serif", label: "step by computing time", labelSize: 18}],
      hooks: {draw: [dot], ready: [nearest]},
    }, [known.limits.map(inUnits), known.best, known.least], at("curve"));
  };

  const drawBounds = () => {
    at("bounds-part").hidden = !view.bounds.length;
    at("known").textContent = view.known;
    fill("bounds", view.bounds.map(bound => {
      const cell = make("td");
      cell.append(make("span", bound.said, "evidence " + (bound.proved ? "proved" : "claimed")));
      return [bound.value, cell, bound.method, bound.finding];
    }));
  };

  const choose = number => {
    view = data.plans[number];
    lastFound = -1;
    at("plan").value = String(number);
    at("title").textContent = view.title;
    at("verdict").textContent = view.verdict;
    at("found").textContent = "";
    fill("facts", view.facts);
    fill("inside", []);
    at("running").replaceChildren();
    at("moment").textContent = "Move over the pictures.";
    const used = new Set(view.bars.flatMap(bars => bars.look));
    at("legend").replaceChildren(...[...used].sort((a, b) => a - b).map(index => {
      const item = make("span"), box = make("i");
      box.style.background = data.looks[index].colour;
      item.append(box, data.looks[index].name);
      return item;
    }));
    drawPlan(); drawCurve(); drawBounds();
  };

  const find = text => {
    const wanted = text.toLowerCase(), bars = view.bars.flatMap((each, row) => each.start.map((start, i) => [row, i, start]));
    bars.sort((a, b) => a[2] - b[2]);
    const hits = bars.filter(([row, i]) => view.names[view.bars[row].name[i]].toLowerCase().includes(wanted));
    if (!wanted || !hits.length) { at("found").textContent = "nothing has this name"; return; }
    lastFound = (lastFound + 1) % hits.length;
    const [row, index] = hits[lastFound], start = view.bars[row].start[index], end = view.bars[row].end[index];
    zoom(start - 6 * (end - start), end + 6 * (end - start));
    hold((start + end) / 2);
    at("found").textContent = `${lastFound + 1} of ${hits.length}: ${told(row, index)}`;
  };

  for (const [number, each] of data.plans.entries()) {
    each.number = number;
    const option = make("option", each.choice);
    option.value = String(number);
    at("plan").append(option);
  }
  at("choose").hidden = data.plans.length < 2;
  at("plan").addEventListener("change", event => choose(Number(event.target.value)));
  at("slider").addEventListener("input", event => choose(group().plans[Number(event.target.value)]));
  at("in").addEventListener("click", () => scaled(0.5));
  at("out").addEventListener("click", () => scaled(2));
  at("whole").addEventListener("click", () => zoom(0, view.span));
  at("find").addEventListener("keydown", event => event.key === "Enter" && find(event.target.value));
  at("find").addEventListener("input", () => { lastFound = -1; });
  document.addEventListener("keydown", event => event.key === "Escape" && hold(null));
  choose(0);
})();
