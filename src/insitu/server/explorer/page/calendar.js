// Dates of the calendars of CF, counted in milliseconds since 1970-01-01 of the same calendar, as the server counts them.

/**
 * A date; months and days count from 1.
 *
 * @typedef {{ year: number, month: number, day: number, hour: number, minute: number, second: number }} DateParts
 */

const DAY = 86_400_000;
const MONTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
const NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const REFORM = 2_299_161; // Julian day of 1582-10-15, the first day of the Gregorian calendar

/** @type {Record<string, string>} */
const SAME = { "365_day": "noleap", "366_day": "all_leap", gregorian: "standard" };

/** @param {string | null | undefined} calendar null: that of NumPy and of browsers */
const nameOf = (calendar) => SAME[calendar ?? ""] ?? calendar ?? "proleptic_gregorian";

/**
 * Return the Julian day number of a date.
 *
 * @param {number} year
 * @param {number} month
 * @param {number} day
 * @param {boolean} isJulian whether every fourth year is a leap year
 */
function julianDay(year, month, day, isJulian) {
  const shift = Math.floor((14 - month) / 12);
  const [y, m] = [year + 4800 - shift, month + 12 * shift - 3];
  const days = day + Math.floor((153 * m + 2) / 5) + 365 * y + Math.floor(y / 4);
  return isJulian ? days - 32083 : days - Math.floor(y / 100) + Math.floor(y / 400) - 32045;
}

/**
 * Return year, month and day of a Julian day number.
 *
 * @param {number} number
 * @param {boolean} isJulian
 */
function fromJulianDay(number, isJulian) {
  const a = number + (isJulian ? 32082 : 32044);
  const b = isJulian ? 0 : Math.floor((4 * a + 3) / 146097);
  const c = isJulian ? a : a - Math.floor((146097 * b) / 4);
  const d = Math.floor((4 * c + 3) / 1461);
  const e = c - Math.floor((1461 * d) / 4);
  const m = Math.floor((5 * e + 2) / 153);
  return {
    year: 100 * b + d - 4800 + Math.floor(m / 10),
    month: m + 3 - 12 * Math.floor(m / 10),
    day: e - Math.floor((153 * m + 2) / 5) + 1,
  };
}

/**
 * Return the lengths of the months of a calendar whose years have one length; null of others.
 *
 * @param {string} name
 */
function fixedMonths(name) {
  if (name === "360_day") return new Array(12).fill(30);
  if (name === "noleap") return MONTHS;
  if (name === "all_leap") return MONTHS.map((days, month) => (month === 1 ? 29 : days));
  return null;
}

/**
 * Return days since 1970-01-01.
 *
 * @param {number} year
 * @param {number} month
 * @param {number} day
 * @param {string} name of the calendar
 */
function daysOf(year, month, day, name) {
  const months = fixedMonths(name);
  if (months) {
    /** @type {(lengths: number[]) => number} */
    const sum = (lengths) => lengths.reduce((total, length) => total + length, 0);
    return (year - 1970) * sum(months) + sum(months.slice(0, month - 1)) + day - 1;
  }
  if (name === "julian") return julianDay(year, month, day, true) - julianDay(1970, 1, 1, true);
  const gregorian = julianDay(year, month, day, false);
  const isOld = name === "standard" && gregorian < REFORM;
  return (isOld ? julianDay(year, month, day, true) : gregorian) - julianDay(1970, 1, 1, false);
}

/**
 * Return a date in milliseconds since 1970.
 *
 * @param {Partial<DateParts> & { year: number }} date
 * @param {string | null} [calendar]
 */
export function toMilliseconds({ year, month = 1, day = 1, hour = 0, minute = 0, second = 0 }, calendar) {
  return daysOf(year, month, day, nameOf(calendar)) * DAY + Math.round(((hour * 60 + minute) * 60 + second) * 1000);
}

/**
 * Return the date of milliseconds since 1970.
 *
 * @param {number} milliseconds
 * @param {string | null} [calendar]
 * @returns {DateParts}
 */
export function toDate(milliseconds, calendar) {
  const days = Math.floor(milliseconds / DAY);
  const rest = (milliseconds - days * DAY) / 1000;
  return {
    ...dayOf(days, nameOf(calendar)),
    hour: Math.floor(rest / 3600),
    minute: Math.floor((rest % 3600) / 60),
    second: Math.round((rest % 60) * 1000) / 1000,
  };
}

/**
 * @param {number} days since 1970-01-01
 * @param {string} name
 */
function dayOf(days, name) {
  const months = fixedMonths(name);
  if (months) {
    const length = months.reduce((total, month) => total + month, 0);
    const year = Math.floor(days / length);
    let [left, month] = [days - year * length, 0];
    while (left >= months[month]) left -= months[month++];
    return { year: 1970 + year, month: month + 1, day: left + 1 };
  }
  if (name === "julian") return fromJulianDay(days + julianDay(1970, 1, 1, true), true);
  const number = days + julianDay(1970, 1, 1, false);
  return fromJulianDay(number, name === "standard" && number < REFORM);
}

const DATE = /^\s*(-?\d{1,6})(?:[-/](\d{1,2})(?:[-/](\d{1,2})(?:[T ]+(\d{1,2})(?::(\d{1,2})(?::(\d{1,2}(?:\.\d+)?))?)?)?)?)?\s*Z?\s*$/;

/**
 * Return a date that somebody typed, or that the server wrote, in milliseconds since 1970; null if it is none. What is
 * left out is the beginning: "2001" is the first of January.
 *
 * @param {string} text
 * @param {string | null} [calendar]
 */
export function parseDate(text, calendar) {
  const found = DATE.exec(text.replace("−", "-"));
  if (!found) return null;
  const [year, month = 1, day = 1, hour = 0, minute = 0, second = 0] = found.slice(1).map((part) => (part === undefined ? undefined : Number(part)));
  if (year === undefined || month < 1 || month > 12 || day < 1 || day > 31 || hour > 24 || minute > 59 || second >= 61) return null;
  return toMilliseconds({ year, month, day, hour, minute, second }, calendar);
}

/** @type {(value: number, digits?: number) => string} */
const pad = (value, digits = 2) => `${value < 0 ? "-" : ""}${String(Math.abs(value)).padStart(digits, "0")}`;

/**
 * Return milliseconds since 1970 as a short ISO text, without what is zero at its end.
 *
 * @param {number} milliseconds
 * @param {string | null} [calendar]
 */
export function formatDate(milliseconds, calendar) {
  if (!Number.isFinite(milliseconds)) return "missing";
  const { year, month, day, hour, minute, second } = toDate(milliseconds, calendar);
  const date = `${pad(year, 4)}-${pad(month)}-${pad(day)}`;
  if (!hour && !minute && !second) return date;
  const seconds = second ? `:${pad(Math.floor(second))}${second % 1 ? String(Math.round((second % 1) * 1000) / 1000).slice(1) : ""}` : "";
  return `${date} ${pad(hour)}:${pad(minute)}${seconds}`;
}

/** @type {["second" | "minute" | "hour" | "day" | "month" | "year", number, number][]} Unit, number of them, ms about. */
const STEPS = [
  ...[1, 5, 15, 30].map((count) => /** @type {["second", number, number]} */ (["second", count, count * 1000])),
  ...[1, 5, 15, 30].map((count) => /** @type {["minute", number, number]} */ (["minute", count, count * 60_000])),
  ...[1, 3, 6, 12].map((count) => /** @type {["hour", number, number]} */ (["hour", count, count * 3_600_000])),
  ...[1, 2, 5, 10].map((count) => /** @type {["day", number, number]} */ (["day", count, count * DAY])),
  ...[1, 3, 6].map((count) => /** @type {["month", number, number]} */ (["month", count, count * 30.4 * DAY])),
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10_000, 100_000].map(
    (count) => /** @type {["year", number, number]} */ (["year", count, count * 365.2 * DAY]),
  ),
];

/**
 * Return about so many round dates between two, and their texts.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} count
 * @param {string | null} [calendar]
 * @returns {{ values: number[], format: (value: number) => string }}
 */
export function dateTicks(low, high, count, calendar) {
  const [unit, number] = STEPS.find(([, , size]) => (high - low) / size <= count) ?? STEPS[STEPS.length - 1];
  const first = toDate(low, calendar);
  const last = toDate(high, calendar);
  /** @type {number[]} */
  const values = [];
  /** @param {Partial<DateParts> & { year: number }} date */
  const add = (date) => values.push(toMilliseconds(date, calendar));
  if (unit === "year") {
    for (let year = Math.floor(first.year / number) * number; year <= last.year; year += number) add({ year });
  } else {
    const firstMonth = first.year * 12 + first.month - 1;
    for (let at = firstMonth; at <= last.year * 12 + last.month - 1; at += 1) {
      const [year, month] = [Math.floor(at / 12), (at % 12) + 1];
      if (unit === "month") {
        if ((month - 1) % number === 0) add({ year, month });
        continue;
      }
      const start = toMilliseconds({ year, month }, calendar);
      const next = toMilliseconds(month === 12 ? { year: year + 1 } : { year, month: month + 1 }, calendar);
      if (unit === "day") {
        // The last one before a month ends would touch the first of the next.
        for (let day = 0; day * DAY < next - start - (number > 2 ? (number / 2) * DAY : 0); day += number) values.push(start + day * DAY);
        continue;
      }
      const size = number * { hour: 3_600_000, minute: 60_000, second: 1000 }[unit];
      const begin = Math.max(start, start + Math.ceil((low - start) / size) * size);
      for (let value = begin; value < next && value <= high; value += size) values.push(value);
    }
  }
  return {
    values: values.filter((value) => value >= low && value <= high),
    format: (value) => {
      const { year, month, day, hour, minute, second } = toDate(value, calendar);
      if (second) return `:${pad(Math.floor(second))}`;
      if (hour || minute) return `${pad(hour)}:${pad(minute)}`;
      if (day > 1) return `${NAMES[month - 1]} ${pad(day)}`;
      return month > 1 ? NAMES[month - 1] : pad(year, 4);
    },
  };
}
