// Pace of the views: they take at most a hundredth of the daemon's time.

/** Shortest time between two views, in milliseconds. */
const INTERVAL = 2000;
/** Longest time between two views, and that of a hidden tab, whose title shows the health. */
const LONGEST = 60_000;
/** Parts of the daemon's time of which the views take at most one. */
const SHARE = 100;
/** The same for views after events. */
const EVENT_SHARE = 10;
/** Time from an event to its view, so that one view shows several events. */
const EVENT_DELAY = 200;

/**
 * Time that the daemon needed for an answer, from its field `Server-Timing`; without the field,
 * the time of the request. All in milliseconds.
 */
export function costOf(timing, took) {
  const found = /\bdur=([0-9.]+)/.exec(timing ?? "");
  return found ? Number(found[1]) : took;
}

/**
 * Time of the next view. `end` and `cost` are those of the last one; `eventAt` is the time of the
 * first event since it was requested, or null.
 */
export function dueAfter({ end, cost }, eventAt, isHidden) {
  if (isHidden) return end + LONGEST;
  const paced = end + Math.min(LONGEST, Math.max(INTERVAL, SHARE * cost));
  if (eventAt === null) return paced;
  return Math.min(paced, Math.max(eventAt + EVENT_DELAY, end + EVENT_SHARE * cost));
}
