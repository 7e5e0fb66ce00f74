// Scales turn values into pixels; ticks are the densest sensible ones whose labels do not touch.

const LEAST_TICKS = 3;
const MOST_TICKS = 8;
const Y_DECADES = 10; // a log y-axis shows at most this number of decades; lower values are clipped and marked
const X_DECADES = 6; // a log x-axis is linear below this share of its end

// Of time there are no decades above a second, but minutes, hours and days; coarser from list to list.
const SECONDS = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1];
const CLOCK = [1, 5, 20, 60, 300, 1200, 3600, 18000, 86400, 432000, 1728000, 8640000];
const CLOCK_TENS = [1e-5, 1e-3, 0.1, 1, 10, 60, 600, 3600, 36000, 345600, 3456000];
const CLOCK_UNITS = [1e-6, 1e-3, 1, 60, 3600, 86400, 8640000];
const CLOCK_STEPS = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 18000, 43200, 86400, 172800, 432000, 864000, 2592000];

function decadeBelow(value) {
  return 10 ** Math.floor(Math.log10(value) + 1e-9);
}

function linearScale(low, high, from, to) {
  return { low, high, log: false, place: (value) => from + ((to - from) * (value - low)) / (high - low) };
}

// Like a logarithm, yet it has a place for 0: log(1 + value / unit).
function zeroLogScale(unit, high, from, to) {
  const span = Math.log1p(high / unit);
  const place = (value) => from + ((to - from) * Math.log1p(value / unit)) / span;
  return { low: 0, unit, high, log: true, place };
}

function xScale(values, log, from, to) {
  const positive = values.filter((value) => value > 0);
  const high = Math.max(...extent(positive), 0) || 1;
  if (!log) return linearScale(0, high, from, to);
  const least = Math.max(extent(positive)[0] ?? high, high / 10 ** X_DECADES);
  return zeroLogScale(decadeBelow(least), high, from, to);
}

function yScale(values, log, from, to) {
  const positive = values.filter((value) => value > 0);
  if (log && positive.length > 0) return logScale(extent(positive), from, to);
  const [low, high] = extent(values.length > 0 ? values : [0, 1]);
  const bottom = Math.min(0, low);
  const top = Math.max(0, high);
  return linearScale(bottom, top > bottom ? top + 0.04 * (top - bottom) : bottom + 1, from, to);
}

function logScale([least, most], from, to) {
  const low = Math.max(least, most / 10 ** Y_DECADES);
  const room = most > low ? (most / low) ** 0.04 : 1.5;
  const [bottom, top] = [low / room, most * room];
  const span = Math.log(top / bottom);
  const place = (value) => from + ((to - from) * Math.log(value / bottom)) / span;
  return { low: bottom, high: top, log: true, place };
}

function extent(values) {
  if (values.length === 0) return [];
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

function multiples(scale, factors, stride) {
  const least = scale.low > 0 ? scale.low : scale.unit;
  const first = Math.floor(Math.log10(least) + 1e-9);
  const last = Math.ceil(Math.log10(scale.high));
  const found = [];
  for (let exponent = first; exponent <= last; exponent += 1) {
    if (exponent % stride === 0) found.push(...factors.map((factor) => Number(`${factor}e${exponent}`)));
  }
  return found;
}

function evenly(scale, step) {
  const first = Math.ceil(scale.low / step - 1e-9);
  const last = Math.floor(scale.high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}

function decades(scale, time) {
  const strides = [1, 2, 3, 4, 5].map((stride) => multiples(scale, [1], stride));
  if (!time) return [multiples(scale, [1, 2, 5], 1), multiples(scale, [1, 3], 1), ...strides];
  return [[...SECONDS, ...CLOCK], CLOCK_TENS, CLOCK_UNITS];
}

function linearCandidates(scale, time) {
  const span = scale.high - scale.low;
  const decade = decadeBelow(span);
  const plain = [0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5].map((share) => share * decade);
  const steps = time && span > 60 ? CLOCK_STEPS.filter((step) => step < span && step > span / 50) : plain;
  return steps.map((step) => evenly(scale, step));
}

// `room(before, after)` says how many pixels two neighboring labels need between their places.
function ticksOf(scale, { time = false, whole = false, room }) {
  const inside = (tick) => tick >= scale.low && tick <= scale.high * (1 + 1e-9) && !(whole && tick % 1 !== 0);
  const zero = scale.low === 0 && scale.log ? [0] : [];
  const clear = (tick) => zero.every((nought) => gap(scale, nought, tick) >= room(nought, tick));
  const tidy = (ticks) => [...zero, ...ticks.filter((tick) => inside(tick) && clear(tick))];
  const fits = (ticks) =>
    ticks.length <= MOST_TICKS &&
    ticks.every((tick, place) => place === 0 || gap(scale, ticks[place - 1], tick) >= room(ticks[place - 1], tick));
  const linear = linearCandidates(scale, time);
  const candidates = scale.log ? [...decades(scale, time), ...linear] : linear;
  const fitting = candidates.map(tidy).filter(fits);
  const longest = (best, ticks) => (ticks.length > best.length ? ticks : best);
  return fitting.find((ticks) => ticks.length >= LEAST_TICKS) || fitting.reduce(longest, []);
}

function gap(scale, before, after) {
  return Math.abs(scale.place(after) - scale.place(before));
}
