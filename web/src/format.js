// Numbers as text, as the daemon's tables print them.

const LETTERS = ["B", "K", "M", "G", "T", "P", "E"];

/** Bytes in at most four characters: `512B`, `1.5K`. */
export function bytes(value) {
  let unit = 0;
  while (Math.round(value) >= 1000 && unit + 1 < LETTERS.length) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit > 0 && value < 9.95 ? value.toFixed(1) : Math.round(value);
  return `${digits}${LETTERS[unit]}`;
}

/** Seconds as a time: `250us`, `1.2ms`. */
export function duration(seconds) {
  const units = [[1, "s"], [1e-3, "ms"], [1e-6, "us"]];
  const [unit, name] = units.find(([least]) => seconds >= least) ?? [1e-9, "ns"];
  const value = seconds / unit;
  return `${value < 9.95 && seconds > 0 ? value.toFixed(1) : Math.round(value)}${name}`;
}

/** Rates of an object in a few words; empty if there are none yet. */
export function rateText(rate) {
  if (!rate) return "";
  const { reads, writes, readBytes, writeBytes, inFlight } = rate;
  if (!reads && !writes && !inFlight) return "idle";
  const operations = Math.round(reads + writes);
  return `${operations}/s ${bytes(readBytes + writeBytes)}/s q${inFlight}`;
}
