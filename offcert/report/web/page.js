"use strict";
// The page of offcert: one document at a time, chosen by list, slider, curve, or dropped into it.
(() => {
  const {at, make, last, digits, bytesAt, plots} = drawing;
  const data = JSON.parse(at("data").textContent);
  const MOST = 10;
  let view = null, shown = null, held = null, lastFound = -1;
  const time = ticks => digits(ticks, shown.time[0], shown.time[1]);
  const BYTES = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
  // In the unit of the picture, or in a smaller one where that says more.
  const size = bytes => {
    const [scale, unit] = shown.size[1] === "units" || bytes >= shown.size[0] ? shown.size : BYTES.find(e => bytes >= e[0]) || BYTES[3];
    return digits(bytes, scale, unit);
  };

  const barAt = (row, moment) => {
    const bars = shown.bars[row], index = last(bars.start, moment);
    return index >= 0 && moment < bars.end[index] ? index : -1;
  };
  const told = (row, index) => {
    const bars = shown.bars[row], name = shown.names[bars.name[index]];
    const span = `${time(bars.start[index])} to ${time(bars.end[index])}`;
    return `${shown.rows[row]}: ${data.looks[bars.look[index]].name}${name ? " " + name : ""}, ${span}`;
  };
  const fillInside = rows => at("inside").querySelector("tbody").replaceChildren(...rows.map(cells => {
    const row = make("tr");
    row.append(...cells.map(cell => make("td", cell)));
    return row;
  }));

  const read = moment => {
    const sizes = shown.lines.map(line => `${line.name} ${size(bytesAt(line, moment))}`);
    at("moment").textContent = `${time(moment)}: ${sizes.join(", ")}, limit ${size(shown.limit)}`;
    const running = shown.rows.map((_, row) => [row, barAt(row, moment)]).filter(e => e[1] >= 0);
    at("running").replaceChildren(...running.map(e => make("li", told(...e))));
    const inside = shown.inside;
    if (!inside) { fillInside([]); return; }
    const there = [];
    for (let i = 0; i < inside.from.length; i++)
      if (inside.from[i] <= moment && moment < inside.to[i]) there.push(i);
    there.sort((a, b) => inside.size[b] - inside.size[a]);
    const rows = there.slice(0, MOST).map(i => [shown.names[inside.name[i]], size(inside.size[i])]);
    const rest = there.slice(MOST), left = rest.reduce((sum, i) => sum + inside.size[i], 0);
    if (rest.length) rows.push([`${rest.length} more`, size(left)]);
    fillInside(rows);
  };
  const hold = moment => {
    held = moment;
    if (!shown) return;
    if (moment !== null) read(moment);
    plots.gantt.redraw(false); plots.memory.redraw(false);
  };
  const scaled = factor => {
    const {min, max} = plots.gantt.scales.x, middle = held ?? (min + max) / 2, half = (max - min) / 2;
    drawing.zoom(shown, middle - half * factor, middle + half * factor);
  };

  const drawPlan = which => {
    shown = which === "training" ? view.training : view;
    held = null; lastFound = -1;
    at("which").hidden = !view.training;
    for (const button of at("which").children) button.setAttribute("aria-pressed", String(button.dataset.which === which));
    at("picture-part").hidden = !shown.lines.length && !shown.bars.some(row => row.start.length);
    const used = new Set(shown.bars.flatMap(bars => bars.look));
    at("legend").replaceChildren(...[...used].sort((a, b) => a - b).map(index => {
      const item = make("span"), box = make("i");
      box.style.background = data.looks[index].colour;
      item.append(box, data.looks[index].name);
      return item;
    }));
    if (at("picture-part").hidden) return;
    drawing.plan(shown, data.looks, () => held, read, hold);
    // Before anybody points at a moment, it is that of the peak.
    const line = shown.lines[0];
    read(line ? line.times[line.sizes.indexOf(line.sizes.reduce((a, b) => Math.max(a, b), 0))] : 0);
  };

  const group = () => data.groups.find(each => each.plans.includes(view.number));
  const drawCurve = () => {
    const known = group();
    at("curve-part").hidden = !known || known.plans.length < 2;
    if (at("curve-part").hidden) { drawing.clear("curve"); return; }
    const now = known.plans.indexOf(view.number);
    at("slider").max = known.plans.length - 1;
    at("slider").value = now;
    at("limit").value = digits(view.limit, view.size[0], view.size[1]);
    drawing.curve(known, now, view.size, place => choose(known.plans[place]));
  };

  // Who explains a kind of bound: the documentation, where the page knows where it is.
  const explained = method => {
    const [about, page] = data.kinds[method] || ["", ""], said = make("p", undefined, "muted");
    const link = data.docs && page ? make("a", method) : make("code", method);
    if (link.tagName === "A") link.href = `${data.docs}theory/${page}.html`;
    said.append(link, about ? `: ${about}` : "");
    if (page && !data.docs) said.append(` (in the documentation: Theory, ${page})`);
    return said;
  };
  const drawBounds = () => {
    at("bounds-part").hidden = !view.bounds.length;
    at("known").textContent = view.known;
    at("bounds").replaceChildren(...view.bounds.map(bound => {
      const made = make("div", undefined, "bound"), why = make("div"), said = make("p");
      said.append(make("span", bound.said, "evidence " + (bound.proved ? "proved" : "claimed")), make("span", bound.finding, "finding"));
      why.append(said, explained(bound.method));
      made.append(make("span", bound.value, "value"), why);
      return made;
    }));
  };

  const fillTiles = (id, tiles) => at(id).replaceChildren(...tiles.map(({name, value, note, part}) => {
    const made = make("div", undefined, "tile");
    made.append(make("div", name, "name"), make("div", value, "value"));
    if (part !== null) {
      const meter = make("div", undefined, "meter"), bar = make("i");
      bar.style.width = `${Math.min(100, 100 * part)}%`;
      meter.append(bar); made.append(meter);
    }
    if (note) made.append(make("div", note, "note"));
    return made;
  }));

  const drawHead = () => {
    document.title = `${view.title} · offcert`;
    at("title").textContent = view.title;
    at("about").textContent = view.about || "";
    at("status").className = view.status.tone;
    at("said").textContent = view.status.said;
    at("checked").textContent = view.status.checked;
    at("checked").className = view.status.mark;
    fillTiles("tiles", view.tiles);
    at("facts").replaceChildren(...view.facts.flatMap(([name, said]) => [make("dt", name), make("dd", said)]));
    at("facts-part").hidden = !view.facts.length;
    at("training-part").hidden = !view.training;
    if (view.training) {
      at("trained").textContent = view.training.status.said;
      fillTiles("trained-tiles", view.training.tiles);
    }
  };

  const draw = () => {
    const doctor = view.kind === "doctor";
    at("doctor-part").hidden = !doctor;
    at("picture-part").hidden = at("curve-part").hidden = at("bounds-part").hidden = doctor;
    if (doctor) { shown = null; doctoring.show(view); return; }
    drawPlan("plan"); drawCurve(); drawBounds();
  };
  const choose = number => {
    view = data.plans[number];
    at("plan").value = String(number);
    at("found").textContent = "";
    at("empty").hidden = true; at("report").hidden = false;
    drawHead(); draw();
  };

  const find = text => {
    const wanted = text.toLowerCase(), bars = shown.bars.flatMap((each, row) => each.start.map((start, i) => [row, i, start]));
    bars.sort((a, b) => a[2] - b[2]);
    const hits = bars.filter(([row, i]) => shown.names[shown.bars[row].name[i]].toLowerCase().includes(wanted));
    if (!wanted || !hits.length) { at("found").textContent = "nothing has this name"; return; }
    lastFound = (lastFound + 1) % hits.length;
    const [row, index] = hits[lastFound], start = shown.bars[row].start[index], end = shown.bars[row].end[index];
    drawing.zoom(shown, start - 6 * (end - start), end + 6 * (end - start));
    hold((start + end) / 2);
    at("found").textContent = `${lastFound + 1} of ${hits.length}: ${told(row, index)}`;
  };

  const list = (each, number) => {
    each.number = number;
    const option = make("option", each.choice);
    option.value = String(number);
    at("plan").append(option);
    at("choose").hidden = data.plans.length < 2;
  };
  const take = async files => {
    for (const file of files) {
      try {
        data.plans.push(reading.viewOf(file.name, JSON.parse(await file.text()), data.looks.map(look => look.name)));
        list(data.plans[data.plans.length - 1], data.plans.length - 1);
        at("problem").hidden = true;
        choose(data.plans.length - 1);
      } catch (error) {
        at("problem").textContent = `${file.name} cannot be shown: ${error.message}`;
        at("problem").hidden = false;
      }
    }
  };

  data.plans.forEach(list);
  at("choose").hidden = data.plans.length < 2;
  at("plan").addEventListener("change", event => choose(Number(event.target.value)));
  at("slider").addEventListener("input", event => choose(group().plans[Number(event.target.value)]));
  at("in").addEventListener("click", () => scaled(0.5));
  at("out").addEventListener("click", () => scaled(2));
  at("whole").addEventListener("click", () => drawing.zoom(shown, 0, shown.span));
  at("which").addEventListener("click", event => event.target.dataset.which && drawPlan(event.target.dataset.which));
  at("find").addEventListener("keydown", event => event.key === "Enter" && find(event.target.value));
  at("find").addEventListener("input", () => { lastFound = -1; });
  document.addEventListener("keydown", event => event.key === "Escape" && hold(null));
  for (const id of ["open", "pick"]) at(id).addEventListener("click", () => at("file").click());
  at("file").addEventListener("change", event => take(event.target.files));
  addEventListener("dragover", event => { event.preventDefault(); document.body.classList.add("over"); });
  addEventListener("dragleave", event => event.relatedTarget || document.body.classList.remove("over"));
  addEventListener("drop", event => { event.preventDefault(); document.body.classList.remove("over"); take(event.dataTransfer.files); });
  let before = innerWidth;
  addEventListener("resize", () => { if (view && innerWidth !== before) { before = innerWidth; draw(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view && draw());
  if (data.plans.length) choose(0); else at("empty").hidden = false;
})();
