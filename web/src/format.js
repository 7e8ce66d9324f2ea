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

/** Rates of an object in a few words; empty if there are none yet. */
export function rateText(rate) {
  if (!rate) return "";
  const { reads, writes, readBytes, writeBytes, inFlight } = rate;
  if (!reads && !writes && !inFlight) return "idle";
  const operations = Math.round(reads + writes);
  return `${operations}/s ${bytes(readBytes + writeBytes)}/s q${inFlight}`;
}
