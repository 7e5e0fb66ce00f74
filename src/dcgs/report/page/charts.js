// One experiment: two panels over one x-axis, a legend, and a tooltip that reads both panels.

const LINES = 8;
const LOSSES = new Set(["local_loss", "worst_loss", "mean_loss"]);
const AXES = {
  lmo_calls: { name: "oracle calls", label: () => "linear oracle calls, maximum over agents", tick: tickNumber, read: count, whole: true },
  rounds: { name: "rounds", label: () => "rounds of communication", tick: tickNumber, read: count, whole: true },
  bytes: { name: "sent", label: () => "bytes sent, maximum over agents", tick: tickSize, read: size },
  time: { name: "modeled time", label: (link) => `modeled time, links of ${link.text}`, tick: tickDuration, read: duration, time: true },
  all_bytes: { name: "sent", label: () => "bytes sent by all agents", tick: tickSize, read: size },
  radius: { name: "radius", label: () => "radius of the set", tick: tickNumber, read: number, positive: true },
  computing: { name: "of computing", label: () => "computing time, one machine per agent", tick: tickDuration, read: duration, time: true },
};

function makeChart(section, data, link) {
  const find = (role) => section.querySelector(`[data-role="${role}"]`);
  const chart = {
    section, data, link, find,
    curves: data.curves.map((curve, place) => ({ ...curve, line: place % LINES })),
    panels: [...section.querySelectorAll("figure")].map((figure) => ({ name: figure.dataset.panel, figure, svg: figure.querySelector("svg") })),
    hidden: new Set(),
    cursor: null,
  };
  listen(chart);
  draw(chart);
  const [{ svg }] = chart.panels;
  const fit = () => { if (svg.clientWidth !== chart.panels[0].area.width) draw(chart); };
  new ResizeObserver(fit).observe(section.querySelector(".panels"));
  return chart;
}

// What is chosen.

function axisOf(chart) {
  const axis = AXES[chart.find("x-axis").value];
  return { ...axis, label: axis.label(chart.link) };
}

function measureOf(chart, panel) {
  if (panel.name === "paper") return chart.data.measures[0];
  return chart.data.measures.find(({ key }) => key === chart.find("measure").value);
}

function pressed(button) {
  return button.getAttribute("aria-pressed") === "true";
}

function visible(chart) {
  return chart.curves.filter(({ key }) => !chart.hidden.has(key));
}

function acrossOf(chart, { columns }) {
  const name = chart.find("x-axis").value;
  if (name !== "time") return columns[name];
  return columns.computing.map((seconds, at) => modeled(seconds, columns.peak_bytes[at], chart).time);
}

function modeled(computing, bytes, { data, link }) {
  if (!known(computing) || !known(bytes)) return { time: null, share: null };
  const waiting = bytes / data.links / link.speed;
  const time = computing + waiting;
  return { time, share: time > 0 ? waiting / time : 0 };
}

// Drawing.

function draw(chart) {
  const shown = visible(chart).length > 0 ? visible(chart) : chart.curves;
  const across = new Map(shown.map((curve) => [curve.key, acrossOf(chart, curve)]));
  chart.across = across;
  chart.stops = [...new Set([...across.values()].flat().filter(known))].sort((a, b) => a - b);
  const values = chart.panels.map((panel) => shown.flatMap(({ columns }) => columns[measureOf(chart, panel).key]).filter(known));
  const together = chart.panels.every((panel) => LOSSES.has(measureOf(chart, panel).key));
  chart.panels.forEach((panel, at) => drawPanel(chart, panel, together ? values.flat() : values[at]));
  note(chart, together);
  showCursor(chart);
}

function drawPanel(chart, panel, values) {
  const axis = axisOf(chart);
  const logX = pressed(chart.find("x-scale"));
  const logY = pressed(chart.find("y-scale"));
  const { clientWidth, clientHeight } = panel.svg;
  const labels = yLabels(yTicks(yScale(values, logY, clientHeight - MARGIN.bottom, MARGIN.top)));
  const area = plotArea(clientWidth, clientHeight, Math.max(1, ...labels.map(({ length }) => length)));
  panel.area = area;
  panel.x = logX && axis.positive ? logScale(extent(chart.stops), area.left, area.right) : xScale(chart.stops, logX, area.left, area.right);
  panel.y = yScale(values, logY, area.bottom, area.top);
  const measure = measureOf(chart, panel);
  const curves = visible(chart).map((curve) => curveOf(curve, panel.name, placesOf(chart, panel, curve)));
  const mark = panel.svg.dataset.watermark;
  panel.cursor = element("g", { class: "cursor" });
  panel.svg.setAttribute("viewBox", `0 0 ${area.width} ${area.height}`);
  panel.svg.setAttribute("aria-label", `${measure.label}, ${measure.symbol}, against ${axis.label}. ${mark} Arrow keys read the values.`);
  panel.svg.replaceChildren(gridOf(area, panel.x, panel.y, axis), ...(mark ? [watermark(area, mark)] : []), ...curves, panel.cursor);
  panel.figure.querySelector('[data-role="title"]').textContent = measure.label;
  panel.figure.querySelector('[data-role="symbol"]').textContent = measure.symbol;
}

function placesOf(chart, panel, curve) {
  const across = chart.across.get(curve.key);
  const { key } = measureOf(chart, panel);
  return pixels(across.map((value, at) => [value, curve.columns[key][at]]), panel.x, panel.y);
}

function note(chart, together) {
  const clipped = chart.section.querySelector(".clip") !== null;
  const atZero = ({ key }) => chart.across.get(key).every((value) => value === 0);
  const parts = [
    together ? "Both panels have the same y-axis." : "",
    clipped ? "▾ marks values below the axis." : "",
    ...visible(chart).filter(atZero).map(({ label }) => `${label} stays at 0 on this x-axis.`),
  ];
  chart.find("chart-note").textContent = parts.join(" ");
}

// Reading values: the cursor stands on a recorded x and reads each curve's last point up to there.

function lastUpTo(across, cursor) {
  let found = -1;
  across.forEach((value, at) => { if (known(value) && value <= cursor) found = at; });
  return found;
}

function setCursor(chart, cursor, panel) {
  chart.cursor = cursor;
  chart.reading = panel;
  showCursor(chart);
}

function showCursor(chart) {
  const tooltip = chart.find("tooltip");
  const off = chart.cursor === null || visible(chart).length === 0;
  tooltip.hidden = off;
  chart.panels.forEach((panel) => panel.cursor.replaceChildren(...(off ? [] : cursorMarks(chart, panel))));
  if (off) return;
  tooltip.dataset.x = chart.cursor;
  const axis = axisOf(chart);
  const head = html("p", { class: "tooltip-head" }, html("strong", {}, axis.read(chart.cursor)), ` ${axis.name}`);
  tooltip.replaceChildren(head, tooltipTable(chart));
  placeTooltip(chart, tooltip);
}

function cursorMarks(chart, panel) {
  const x = rounded(panel.x.place(chart.cursor));
  const line = element("line", { class: "crosshair", x1: x, x2: x, y1: panel.area.top, y2: panel.area.bottom });
  const dots = visible(chart).flatMap((curve) => {
    const place = placesOf(chart, panel, curve)[lastUpTo(chart.across.get(curve.key), chart.cursor)];
    return place ? [dot(place, `read line-${curve.line}`, 4)] : [];
  });
  return [line, ...dots];
}

function html(name, attributes, ...children) {
  const made = document.createElement(name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  made.append(...children);
  return made;
}

function tooltipTable(chart) {
  const heads = chart.panels.map((panel) => html("th", { scope: "col" }, measureOf(chart, panel).symbol));
  const head = html("tr", {}, html("td", {}), html("td", {}), ...heads);
  return html("table", {}, head, ...visible(chart).map((curve) => tooltipRow(chart, curve)));
}

function tooltipRow(chart, curve) {
  const across = chart.across.get(curve.key);
  const at = lastUpTo(across, chart.cursor);
  const ended = chart.cursor > across[across.length - 1];
  const name = html("th", { scope: "row" }, ended ? `${curve.label} (ended)` : curve.label);
  const cells = chart.panels.map((panel) => html("td", {}, at < 0 ? "–" : number(curve.columns[measureOf(chart, panel).key][at])));
  const swatch = element("svg", { class: "swatch", viewBox: "0 0 34 10", width: 26, height: 8, "aria-hidden": "true" },
    element("line", { class: `line-${curve.line}`, x1: 1, y1: 5, x2: 33, y2: 5 }));
  return html("tr", { "data-curve": curve.key, class: ended ? "ended" : "" }, html("td", {}, swatch), name, ...cells);
}

// Beside the cursor where there is room, else below the panel, where no finger hides it.
function placeTooltip(chart, tooltip) {
  const panels = chart.section.querySelector(".panels").getBoundingClientRect();
  const box = chart.reading.svg.getBoundingClientRect();
  const at = box.left - panels.left + chart.reading.x.place(chart.cursor);
  const right = at + 16;
  const left = at - 16 - tooltip.offsetWidth;
  const beside = right + tooltip.offsetWidth <= panels.width ? right : left;
  const fits = beside >= 0;
  tooltip.style.left = `${fits ? beside : Math.max(0, (panels.width - tooltip.offsetWidth) / 2)}px`;
  tooltip.style.top = `${fits ? box.top - panels.top + MARGIN.top : box.bottom - panels.top}px`;
}

function nearest(chart, panel, pixel) {
  const away = (stop) => Math.abs(panel.x.place(stop) - pixel);
  return chart.stops.reduce((best, stop) => (away(stop) < away(best) ? stop : best), chart.stops[0]);
}

// Listening.

function listen(chart) {
  ["x-axis", "measure"].forEach((role) => chart.find(role).addEventListener("change", () => draw(chart)));
  ["x-scale", "y-scale"].forEach((role) => chart.find(role).addEventListener("click", ({ currentTarget }) => {
    currentTarget.setAttribute("aria-pressed", String(!pressed(currentTarget)));
    draw(chart);
  }));
  chart.section.querySelectorAll(".legend [data-curve]").forEach((button) => {
    button.addEventListener("click", () => toggle(chart, button));
  });
  chart.panels.forEach((panel) => listenToPanel(chart, panel));
}

function toggle(chart, button) {
  const show = !pressed(button);
  button.setAttribute("aria-pressed", String(show));
  if (show) chart.hidden.delete(button.dataset.curve);
  else chart.hidden.add(button.dataset.curve);
  draw(chart);
}

function listenToPanel(chart, panel) {
  const point = (event) => {
    if (chart.stops.length === 0) return;
    setCursor(chart, nearest(chart, panel, event.clientX - panel.svg.getBoundingClientRect().left), panel);
  };
  panel.svg.addEventListener("pointerdown", point);
  panel.svg.addEventListener("pointermove", point);
  panel.svg.addEventListener("pointerleave", ({ pointerType }) => {
    if (pointerType === "mouse") setCursor(chart, null, panel);
  });
  panel.svg.addEventListener("blur", () => setCursor(chart, null, panel));
  panel.svg.addEventListener("keydown", (event) => step(chart, panel, event));
}

function step(chart, panel, event) {
  const last = chart.stops.length - 1;
  const now = chart.stops.findIndex((stop) => stop >= (chart.cursor ?? -1));
  const at = now < 0 ? last : now;
  const fresh = chart.cursor === null;
  const moves = { ArrowLeft: fresh ? last : at - 1, ArrowRight: fresh ? 0 : at + 1, Home: 0, End: last, Escape: null };
  if (!(event.key in moves) || last < 0) return;
  event.preventDefault();
  const to = moves[event.key];
  setCursor(chart, to === null ? null : chart.stops[Math.min(Math.max(to, 0), last)], panel);
}
