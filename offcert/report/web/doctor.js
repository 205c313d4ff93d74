"use strict";
// The part of the page for answers of `doctor`: sizes, parts of the peak, ways to train.
const doctoring = (() => {
  const {at, make, colour, axis, plot} = drawing;
  // Colours by the palette of Okabe and Ito; parts come in a fixed order, so a colour has one meaning.
  const COLOURS = ["#56b4e9", "#0072b2", "#009e73", "#e69f00", "#cc79a7", "#f0e442", "#d55e00", "#999999"];
  const scaleOf = most => [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].find(e => most >= 2 * e[0]) || [1, "B"];
  const timeOf = most => [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(e => most >= 2 * e[0]) || [1, "ns"];

  const row = (cells, names, head) => {
    const made = make("div", undefined, head ? "row head" : "row");
    cells.forEach(([text, tone], number) => {
      const cell = make(number ? "span" : "b", text, tone);
      if (!head && number > 1) cell.dataset.name = names[number];
      made.append(cell);
    });
    return made;
  };
  const table = (id, names, rows) => {
    const made = rows.map(([cells, why]) => {
      const each = row(cells, names, false);
      if (why) each.append(make("span", why, "why"));
      return each;
    });
    at(id).replaceChildren(row(names.map(name => [name]), names, true), ...made);
  };

  const stacks = view => {
    const names = [...new Set(view.sizes.flatMap(size => size.parts.map(part => part[0])))];
    const most = Math.max(view.limit, ...view.sizes.map(size => size.peak)) * 1.02;
    const of = name => COLOURS[names.indexOf(name) % COLOURS.length], legend = make("ul", undefined, "legend");
    for (const name of names) {
      const item = make("li"), key = make("i", undefined, "key");
      key.style.background = of(name);
      item.append(key, name);
      legend.append(item);
    }
    at("stacks").replaceChildren(legend, ...view.sizes.map(size => {
      const made = make("div", undefined, "stack"), top = make("div", undefined, "top"), strip = make("div", undefined, "strip"), limit = make("em");
      top.append(make("b", size.label), make("span", size.peak_said));
      for (const [name, bytes, said] of size.parts) {
        const part = make("i");
        part.style.cssText = `width:${100 * bytes / most}%;background:${of(name)}`;
        part.title = `${name} ${said}`;
        strip.append(part);
      }
      limit.style.left = `${100 * view.limit / most}%`;
      strip.append(limit);
      // What is seen in the strip is said in numbers.
      const large = size.parts.filter(part => part[1] >= 0.02 * size.peak).map(([name, , said]) => `${name} ${said}`);
      made.append(top, strip, make("div", `${large.join(", ")}; the peak is at ${size.at}`, "muted"));
      return made;
    }));
  };

  // Time of a step over the memory it takes, by each way; what lies left and below is better.
  const ways = (view, size) => {
    const sorted = [...size.ways].sort((a, b) => a.size - b.size), scale = scaleOf(Math.max(view.limit, ...sorted.map(e => e.size)));
    const time = timeOf(Math.max(...sorted.map(e => e.step)));
    const best = [];
    for (const each of sorted) best.push(Math.min(each.step, ...best));
    const dots = u => {
      const ratio = devicePixelRatio, limit = u.valToPos(view.limit / scale[0], "x", true);
      drawing.mark(u, limit, colour("ink"), [7, 5]);
      u.ctx.font = `${12 * ratio}px system-ui, sans-serif`; u.ctx.textBaseline = "bottom";
      const placed = [];
      sorted.forEach(each => {
        const x = u.valToPos(each.size / scale[0], "x", true), y = u.valToPos(each.step / time[0], "y", true);
        u.ctx.fillStyle = each.fits ? colour("good") : colour("bad");
        u.ctx.beginPath(); u.ctx.arc(x, y, 5.5 * ratio, 0, 7); u.ctx.fill();
        // Names stand beside their points, and above those that were there before.
        const wide = u.ctx.measureText(each.name).width, right = x + wide + 10 * ratio > u.bbox.left + u.bbox.width;
        const left = right ? x - wide - 9 * ratio : x + 9 * ratio;
        let base = y - 4 * ratio;
        const covered = () => placed.some(([a, b, at]) => left < b && a < left + wide && Math.abs(at - base) < 15 * ratio);
        while (covered()) base -= 4 * ratio;
        placed.push([left, left + wide, base]);
        u.ctx.fillStyle = colour("ink"); u.ctx.textAlign = "left";
        u.ctx.fillText(each.name, left, base);
      });
    };
    const top = Math.max(...sorted.map(e => e.step)) / time[0] * 1.18, right = Math.max(view.limit, ...sorted.map(e => e.size)) / scale[0] * 1.06;
    plot("ways", drawing.narrow() ? 230 : 280, {cursor: {show: false}, hooks: {draw: [dots]},
      scales: {x: {time: false, range: () => [0, right]}, y: {range: () => [0, top]}},
      series: [{}, {stroke: colour("best"), width: 1.6, paths: uPlot.paths.stepped({align: 1}), points: {show: false}}],
      axes: [axis({size: 34, label: "memory of the device", values: (u, marks) => marks.map(m => `${Number(m.toPrecision(4))} ${scale[1]}`)}),
        axis({size: 60, label: "one step", values: (u, marks) => marks.map(m => `${Number(m.toPrecision(4))} ${time[1]}`)})]},
      [sorted.map(e => e.size / scale[0]), best.map(step => step / time[0])]);
    const names = ["way to train", "", "step", "samples/s", "memory", ""];
    table("ways-list", names, size.ways.map(each => [[[each.name], [each.fits ? "fits" : "too much", each.fits ? "good" : "bad"],
      [each.step_said], [each.rate], [each.size_said], [""]], ""]));
  };

  const show = view => {
    const names = ["size", "", "step", "samples/s", "from the best", "without a plan"];
    table("sizes", names, view.sizes.map(size => [[[size.label], [size.said, size.tone], [size.step],
      [size.rate], [size.away], [size.peak_said]], size.why]));
    stacks(view);
    at("size").replaceChildren(...view.sizes.map((size, number) => {
      const option = make("option", size.label);
      option.value = String(number);
      return option;
    }));
    const chosen = Math.max(view.sizes.findLastIndex(size => size.step), 0);
    at("size").value = String(chosen);
    at("size").onchange = () => ways(view, view.sizes[Number(at("size").value)]);
    at("of-size").hidden = view.sizes.length < 2;
    ways(view, view.sizes[chosen]);
  };

  return {show};
})();
