// Numbers as people read them; numbers.py says the same numbers in the same words.

const SIZES = [[1e12, 1e12, "TB"], [1e9, 1e9, "GB"], [1e6, 1e6, "MB"], [1e3, 1e3, "kB"], [0, 1, "B"]];
const TIMES = [
  [172800, 86400, "d"], [7200, 3600, "h"], [120, 60, "min"], [1, 1, "s"], [1e-3, 1e-3, "ms"], [0, 1e-6, "µs"],
];

function known(value) {
  return value !== null && Number.isFinite(value);
}

function superscript(exponent) {
  return String(exponent).replace("-", "⁻").replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
}

function grouped(text) {
  const [whole, rest] = text.split(".");
  const commas = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return rest === undefined ? commas : `${commas}.${rest}`;
}

function number(value) {
  if (!known(value)) return "–";
  if (value === 0) return "0";
  const sign = value < 0 ? "−" : "";
  const [mantissa, power] = Math.abs(value).toExponential(3).split("e");
  const exponent = Number(power);
  if (exponent < -3 || exponent >= 4) return `${sign}${mantissa}·10${superscript(exponent)}`;
  return sign + grouped(Math.abs(value).toFixed(3 - exponent));
}

function count(value) {
  return known(value) ? grouped(value.toFixed(0)) : "–";
}

function threeDigits(value) {
  const exponent = Number(value.toExponential(2).split("e")[1]);
  return grouped(value.toFixed(Math.max(0, 2 - exponent)));
}

function inUnits(value, units, digits) {
  const [, unit, name] = units.find(([least]) => value >= least) || units[units.length - 1];
  return `${digits(value / unit)} ${name}`;
}

function size(value) {
  if (!known(value)) return "–";
  return value < 1000 ? `${value.toFixed(0)} B` : inUnits(value, SIZES, threeDigits);
}

function duration(value) {
  if (!known(value)) return "–";
  if (value === 0) return "0 s";
  return value < 1e-6 ? "<1 µs" : inUnits(value, TIMES, threeDigits);
}

function share(value) {
  if (!known(value)) return "–";
  if (value > 0 && value < 0.001) return "<0.1%";
  if (value > 0.999 && value < 1) return ">99.9%";
  return `${Number((100 * value).toPrecision(3))}%`;
}

// On an axis: no more digits than the tick needs.

function bare(value) {
  return String(Number(value.toPrecision(6)));
}

function tickNumber(value) {
  const size = Math.abs(value);
  return value === 0 || (size >= 1e-3 && size < 1e5) ? (value < 0 ? "−" : "") + grouped(bare(size)) : tickPower(value);
}

function tickPower(value) {
  if (value === 0) return "0";
  const [mantissa, exponent] = Math.abs(value).toExponential(5).split("e").map(Number);
  const power = { 0: "1", 1: "10" }[exponent] || `10${superscript(exponent)}`;
  const factor = exponent === 0 || exponent === 1 ? bare(Math.abs(value)) : `${bare(mantissa)}·${power}`;
  return (value < 0 ? "−" : "") + (mantissa === 1 ? power : factor);
}

function tickSize(value) {
  return value === 0 ? "0" : inUnits(value, SIZES, bare);
}

// In the largest unit that gives a whole number: 90 s, not 1.5 min.
function tickDuration(value) {
  const suits = ([, unit, name]) => value >= unit && (unit <= 1 || (value % unit === 0 && (name !== "d" || value > unit)));
  const [, unit, name] = TIMES.find(suits) || TIMES[TIMES.length - 1];
  return value === 0 ? "0" : `${bare(value / unit)} ${name}`;
}
