"use strict";
// The pictures: bars by rows, bytes over time, and curves. Texts go into the page as texts, never
// as HTML; colours are those of page.css, for light and for dark.
const drawing = (() => {
  const at = id => document.getElementById(id);
  const make = (tag, text, name) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (name) made.className = name;
    return made;
  };
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const narrow = () => innerWidth <= 680;
  const labels = () => narrow() ? 66 : 96;
  const ROW = 34, plots = {};
  const FONT = "12px system-ui, sans-serif";

  // The last place at which a sorted list is at most a value; -1 before all.
  const last = (sorted, value) => {
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= value) low = middle + 1; else high = middle;
    }
    return low - 1;
  };
  const digits = (value, scale, unit) => `${Number((value / scale).toPrecision(5))} ${unit}`.trim();
  const bytesAt = (line, moment) => {
    const index = last(line.times, moment);
    if (index < 0) return 0;
    if (!line.slanted || index + 1 >= line.times.length) return line.sizes[index];
    const [a, b] = [line.times[index], line.times[index + 1]];
    const part = b > a ? (moment - a) / (b - a) : 0;
    return line.sizes[index] + part * (line.sizes[index + 1] - line.sizes[index]);
  };

  // One plot in an element, as wide as that is, in place of the one before.
  const plot = (id, height, options, data) => {
    if (plots[id]) plots[id].destroy();
    const width = Math.max(at(id).clientWidth, 240);
    const all = Object.assign({width, height, legend: {show: false}, padding: [8, 14, 0, 0]}, options);
    return plots[id] = new uPlot(all, data, at(id));
  };
  const clear = id => { if (plots[id]) plots[id].destroy(); delete plots[id]; };
  const axis = extra => Object.assign({stroke: colour("muted"), font: FONT, labelFont: FONT, labelSize: 20, labelGap: 2,
    grid: {stroke: colour("line"), width: 1}, ticks: {stroke: colour("line"), width: 1, size: 4}}, extra);
  const mark = (u, x, of, dashes) => {
    u.ctx.strokeStyle = of; u.ctx.lineWidth = 1.5 * devicePixelRatio; u.ctx.setLineDash(dashes.map(d => d * devicePixelRatio));
    u.ctx.beginPath(); u.ctx.moveTo(x, u.bbox.top); u.ctx.lineTo(x, u.bbox.top + u.bbox.height); u.ctx.stroke();
    u.ctx.setLineDash([]);
  };

  const bars = (view, looks, held) => u => {
    const g = u.ctx, {min, max} = u.scales.x, ratio = devicePixelRatio, height = u.bbox.height / view.rows.length;
    g.save();
    g.beginPath(); g.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height); g.clip();
    g.textBaseline = "middle"; g.textAlign = "left"; g.font = `${11.5 * ratio}px system-ui, sans-serif`;
    view.bars.forEach((row, number) => {
      const top = u.bbox.top + number * height + height * 0.08;
      g.fillStyle = colour("soft"); g.fillRect(u.bbox.left, top, u.bbox.width, height * 0.84);
      let shown = -1;
      for (let i = Math.max(last(row.start, min), 0); i < row.start.length && row.start[i] <= max; i++) {
        const left = u.valToPos(row.start[i], "x", true), right = u.valToPos(row.end[i], "x", true);
        // Bars of which a pixel holds many: one of them is enough.
        if (right <= shown + 0.5 && right - left < 1) continue;
        shown = right;
        const look = looks[row.look[i]], wide = right - left;
        g.fillStyle = look.colour;
        g.fillRect(left, top, Math.max(wide - (wide > 4 ? ratio : 0), 0.7), height * 0.84);
        const name = view.names[row.name[i]], room = Math.floor((wide / ratio - 8) / 6.4);
        if (name && room >= Math.min(name.length, 6)) {
          g.fillStyle = look.text;
          g.fillText(room < name.length ? name.slice(0, room - 1) + "…" : name, left + 5 * ratio, top + height * 0.43);
        }
      }
    });
    if (view.bound !== null) mark(u, u.valToPos(view.bound, "x", true), colour("mark"), [2, 3]);
    if (held() !== null) mark(u, u.valToPos(held(), "x", true), colour("ink"), []);
    g.restore();
  };

  // Bars and bytes of a plan, zoomed together; `tell` gets the moment at the cursor, `hold` a click.
  const plan = (view, looks, held, tell, hold) => {
    let same = false;
    const together = u => {
      if (same || !plots.gantt || !plots.memory) return;
      same = true;
      const {min, max} = u.scales.x;
      for (const other of [plots.gantt, plots.memory]) if (other !== u) other.setScale("x", {min, max});
      same = false;
    };
    const x = () => ({time: false, range: (u, low, high) => low === null ? [0, view.span] : [low, high]});
    const hooks = draw => ({draw: [draw], setScale: [(u, key) => key === "x" && together(u)],
      setCursor: [u => { if (held() === null && u.cursor.left >= 0) tell(u.posToVal(u.cursor.left, "x")); }],
      ready: [u => u.over.addEventListener("click", event => {
        // A click that ends a drag is none.
        if (u.select.width > 0 && event.detail === 0) return;
        hold(u.posToVal(event.offsetX, "x"));
      })]});
    const cursor = {sync: {key: "offcert", scales: ["x", null]}, drag: {x: true, y: false}, y: false, points: {show: false}};
    const none = {show: false};
    clear("memory");
    plot("gantt", view.rows.length * ROW + 8, {cursor, scales: {x: x(), y: {range: () => [0, 1]}},
      series: [{}, {show: true, stroke: "#00000000", points: none}], hooks: hooks(bars(view, looks, held)),
      axes: [none, axis({size: labels(), grid: none, ticks: none, splits: () => view.rows.map((_, row) => 1 - (row + 0.5) / view.rows.length),
        values: () => view.rows.map(row => row.replace(", ", narrow() ? ",\n" : ", ").replace("link back", narrow() ? "link\nback" : "link back"))})]},
      [[0, view.span], [0, 0]]);
    const unit = bytes => bytes / view.size[0];
    const times = [...new Set(view.lines.flatMap(line => line.times).concat([0, view.span]))].sort((a, b) => a - b);
    const largest = Math.max(...view.lines.map(line => line.sizes.reduce((a, b) => Math.max(a, b), 0)), 1);
    const top = unit((view.limit >= largest && view.limit <= 3 * largest ? view.limit : largest) * 1.08);
    const stepped = uPlot.paths.stepped({align: 1}), linear = uPlot.paths.linear();
    const line = (each, number) => {
      const of = number ? colour("mark") : colour("held");
      return {stroke: of, width: 1.6, fill: number ? undefined : of + "38", paths: each.slanted ? linear : stepped, points: none};
    };
    plot("memory", narrow() ? 190 : 240, {cursor, scales: {x: x(), y: {range: () => [0, top]}}, 
      series: [{}, ...view.lines.map(line), {stroke: colour("ink"), dash: [7, 5], width: 1.3, points: none}],
      hooks: hooks(u => held() !== null && mark(u, u.valToPos(held(), "x", true), colour("ink"), [])),
      axes: [axis({size: 34, values: (u, marks) => marks.map(value => digits(value, view.time[0], "")), label: `time (${view.time[1]})`}),
        axis({size: labels(), values: (u, marks) => marks.map(value => `${Number(value.toPrecision(6))} ${view.size[1]}`)})]},
      [times, ...view.lines.map(each => times.map(t => unit(bytesAt(each, t)))), times.map(() => unit(view.limit))]);
  };

  const zoom = (view, low, high) => {
    const span = Math.max(high - low, view.span / 1e6);
    const begin = Math.min(Math.max(low, 0), Math.max(view.span - span, 0));
    plots.gantt.setScale("x", {min: begin, max: Math.min(begin + span, view.span)});
  };

  // Steps by computing time over memory limits; `chosen` gets the place of the point clicked at.
  const curve = (known, now, scale, chosen) => {
    const unit = bytes => bytes / scale[0];
    const dot = u => {
      if (known.best[now] === null) return;
      u.ctx.fillStyle = colour("mark"); u.ctx.beginPath();
      u.ctx.arc(u.valToPos(unit(known.limits[now]), "x", true), u.valToPos(known.best[now], "y", true), 6 * devicePixelRatio, 0, 7); u.ctx.fill();
    };
    const nearest = u => u.over.addEventListener("click", event => {
      const limit = u.posToVal(event.offsetX, "x") * scale[0], far = known.limits.map(each => Math.abs(each - limit));
      chosen(far.indexOf(Math.min(...far)));
    });
    plot("curve", narrow() ? 210 : 260, {cursor: {drag: {x: false, y: false}, y: false}, hooks: {draw: [dot], ready: [nearest]},
      scales: {x: {time: false}, y: {range: (u, low, high) => [Math.min(low, 1), Math.max(high, 1.02) + 0.06 * Math.max(high - 1, 0.02)]}},
      series: [{}, {stroke: colour("best"), width: 2, paths: uPlot.paths.stepped({align: 1}), points: {show: true, size: 7, fill: colour("card")}},
        {stroke: colour("best"), dash: [4, 4], width: 1.4, paths: uPlot.paths.stepped({align: -1}), points: {show: false}}],
      axes: [axis({size: 34, values: (u, marks) => marks.map(value => `${Number(value.toPrecision(6))} ${scale[1]}`)}),
        axis({size: 52, label: "step by computing time"})]},
      [known.limits.map(unit), known.best, known.least]);
  };

  return {at, make, colour, narrow, last, digits, bytesAt, plot, clear, axis, mark, plan, zoom, curve, plots};
})();
