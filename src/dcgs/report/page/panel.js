// One panel: axes, grid and curves as SVG. It is given scales and points, and knows no study.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { top: 12, right: 14, bottom: 46 };
const CHARACTER = 6.7; // pixels of a label's character, about
const LABEL_GAP = 16;
const FEW_POINTS = 30;

function element(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  made.append(...children);
  return made;
}

function rounded(pixels) {
  return pixels.toFixed(1);
}

// The part of a box for the curves; the labels at its left have this number of characters.
function plotArea(width, height, characters) {
  const left = Math.max(34, Math.ceil(characters * CHARACTER) + 12);
  return { left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom, width, height };
}

function xTicks(scale, axis) {
  const room = (before, after) => (CHARACTER * (axis.tick(before).length + axis.tick(after).length)) / 2 + LABEL_GAP;
  return ticksOf(scale, { time: axis.time, whole: axis.whole, room });
}

function yTicks(scale) {
  return ticksOf(scale, { room: () => 26 });
}

// All with a power of ten where one of them is better written so.
function yLabels(ticks) {
  const plain = (tick) => tick === 0 || (Math.abs(tick) >= 1e-3 && Math.abs(tick) < 1e5);
  return ticks.map(ticks.every(plain) ? tickNumber : tickPower);
}

function gridOf(area, x, y, axis) {
  const labels = yLabels(yTicks(y));
  const across = yTicks(y).flatMap((tick, at) => horizontal(area, y.place(tick), labels[at]));
  const down = xTicks(x, axis).flatMap((tick) => vertical(area, x.place(tick), axis.tick(tick)));
  const frame = element("path", { class: "frame", d: `M${area.left},${area.top}V${area.bottom}H${area.right}` });
  const middle = rounded((area.left + area.right) / 2);
  const label = element("text", { class: "axis-label", x: middle, y: area.height - 8, "text-anchor": "middle" }, axis.label);
  return element("g", { class: "axes" }, ...across, ...down, frame, label);
}

function horizontal(area, at, text) {
  const y = rounded(at);
  return [
    element("line", { class: "grid", x1: area.left, x2: area.right, y1: y, y2: y }),
    element("text", { class: "tick y-tick", x: area.left - 8, y, dy: "0.35em", "text-anchor": "end" }, text),
  ];
}

function vertical(area, at, text) {
  const x = rounded(at);
  const middle = rounded(Math.min(at, area.width - (CHARACTER * text.length) / 2 - 4));
  return [
    element("line", { class: "grid", x1: x, x2: x, y1: area.top, y2: area.bottom }),
    element("text", { class: "tick x-tick", x: middle, y: area.bottom + 18, "text-anchor": "middle" }, text),
  ];
}

function watermark(area, text) {
  const x = rounded((area.left + area.right) / 2);
  const y = rounded((area.top + area.bottom) / 2);
  return element("text", { class: "watermark", x, y, "text-anchor": "middle" }, text);
}

// Points of which a coordinate is not known are left out, and the line has a gap there.
function pixels(points, x, y) {
  return points.map(([across, up]) => {
    if (!known(across) || !known(up)) return null;
    const clipped = y.log && up < y.low;
    return { x: x.place(across), y: clipped ? y.place(y.low) : y.place(up), clipped };
  });
}

function pathOf(places) {
  let pen = "M";
  return places.map((place) => {
    if (place === null) { pen = "M"; return ""; }
    const step = `${pen}${rounded(place.x)},${rounded(place.y)}`;
    pen = "L";
    return step;
  }).join("");
}

function curveOf(curve, panel, places) {
  const shared = { "data-curve": curve.key, "data-panel": panel };
  const path = element("path", { class: `curve line-${curve.line}`, d: pathOf(places), ...shared });
  const seen = places.filter((place) => place !== null);
  const dots = seen.length < FEW_POINTS ? seen.map((place) => dot(place, `dot line-${curve.line}`, 2.4)) : [];
  return element("g", {}, path, ...dots, ...clipMarks(places, curve.line));
}

function dot(place, look, radius) {
  return element("circle", { class: look, cx: rounded(place.x), cy: rounded(place.y), r: radius });
}

// A triangle where a curve leaves the axis at its foot, and one where it ends below it.
function clipMarks(places, line) {
  const clipped = (place) => Boolean(place && place.clipped);
  const marked = places.filter((place, at) => clipped(place) && (!clipped(places[at - 1]) || at === places.length - 1));
  return marked.map(({ x, y }) => element("path", {
    class: `clip line-${line}`, d: `M${rounded(x - 5)},${rounded(y - 8)}h10l-5,8z`,
  }));
}
