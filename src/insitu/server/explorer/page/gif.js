// Encoder of animated GIF (version 89a): one palette for all frames, LZW as the specification's appendix F has it.

/** @typedef {{ width: number, height: number, data: Uint8ClampedArray | Uint8Array }} Frame pixels as red, green, blue, alpha */

const COLOURS = 256;
const CODE_LIMIT = 4096; // 12 bits

/** Return the place of a colour in a table of 5 bits for each of red, green and blue. */
const bucketOf = (/** @type {number} */ red, /** @type {number} */ green, /** @type {number} */ blue) =>
  ((red >> 3) << 10) | ((green >> 3) << 5) | (blue >> 3);

/**
 * Return the file of an animation that runs for ever.
 *
 * @param {Frame[]} frames of one size
 * @param {number} pause hundredths of a second for each
 */
export function encodeGif(frames, pause) {
  const { width, height } = frames[0];
  const { palette, indexOf } = makePalette(frames);
  /** @type {number[]} */
  const head = [...new TextEncoder().encode("GIF89a"), ...short(width), ...short(height), 0xf7, 0, 0, ...palette];
  const loop = [0x21, 0xff, 11, ...new TextEncoder().encode("NETSCAPE2.0"), 3, 1, 0, 0, 0];
  /** @type {Uint8Array[]} */
  const parts = [Uint8Array.from([...head, ...loop])];
  for (const { data } of frames) {
    const indices = new Uint8Array(width * height);
    for (let at = 0; at < indices.length; at += 1)
      indices[at] = indexOf[bucketOf(data[4 * at], data[4 * at + 1], data[4 * at + 2])];
    const control = [0x21, 0xf9, 4, 0, ...short(pause), 0, 0];
    const image = [0x2c, 0, 0, 0, 0, ...short(width), ...short(height), 0, 8];
    parts.push(Uint8Array.from([...control, ...image]), blocksOf(compress(indices)));
  }
  parts.push(Uint8Array.of(0x3b));
  return joined(parts);
}

/** @param {number} value */
const short = (value) => [value & 255, value >> 8];

/** @param {Uint8Array[]} parts */
function joined(parts) {
  const made = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    made.set(part, at);
    at += part.length;
  }
  return made;
}

/**
 * Return the most frequent colours of all frames, and for every place of the table of colours the nearest of them.
 *
 * @param {Frame[]} frames
 */
function makePalette(frames) {
  const counts = new Float64Array(1 << 15);
  const sums = [0, 1, 2].map(() => new Float64Array(1 << 15));
  for (const { data } of frames) {
    for (let at = 0; at < data.length; at += 4) {
      const bucket = bucketOf(data[at], data[at + 1], data[at + 2]);
      counts[bucket] += 1;
      for (let part = 0; part < 3; part += 1) sums[part][bucket] += data[at + part];
    }
  }
  const used = [...counts.keys()].filter((bucket) => counts[bucket] > 0);
  const chosen = [...used].sort((one, other) => counts[other] - counts[one]).slice(0, COLOURS);
  const palette = new Uint8Array(3 * COLOURS);
  chosen.forEach((bucket, number) => {
    for (let part = 0; part < 3; part += 1) palette[3 * number + part] = Math.round(sums[part][bucket] / counts[bucket]);
  });
  const indexOf = new Uint8Array(1 << 15);
  for (const bucket of used) {
    const colour = sums.map((sum) => sum[bucket] / counts[bucket]);
    let best = Infinity;
    for (let number = 0; number < chosen.length; number += 1) {
      const distance = colour.reduce((sum, value, part) => sum + (value - palette[3 * number + part]) ** 2, 0);
      if (distance >= best) continue;
      best = distance;
      indexOf[bucket] = number;
    }
  }
  return { palette, indexOf };
}

/**
 * Return indices of 8 bits compressed by LZW with codes of variable length.
 *
 * @param {Uint8Array} indices
 */
function compress(indices) {
  const [clear, end] = [256, 257];
  /** @type {number[]} */
  const bytes = [];
  let [pending, bits, size, next] = [0, 0, 9, end + 1];
  /** @type {Map<number, number>} Code of a known run and the index that follows it. */
  let table = new Map();
  const write = (/** @type {number} */ code) => {
    pending |= code << bits;
    bits += size;
    while (bits >= 8) {
      bytes.push(pending & 255);
      pending >>>= 8;
      bits -= 8;
    }
  };
  write(clear);
  let run = indices[0];
  for (let at = 1; at < indices.length; at += 1) {
    const key = (run << 8) | indices[at];
    const known = table.get(key);
    if (known !== undefined) {
      run = known;
      continue;
    }
    write(run);
    run = indices[at];
    if (next === CODE_LIMIT) {
      write(clear);
      [table, size, next] = [new Map(), 9, end + 1];
      continue;
    }
    table.set(key, next);
    // The decoder knows a code one step later than we do.
    if (next === 1 << size) size += 1;
    next += 1;
  }
  write(run);
  write(end);
  if (bits) bytes.push(pending & 255);
  return Uint8Array.from(bytes);
}

/**
 * Return data in blocks of 255 bytes at most, each after its length, and the empty block at the end.
 *
 * @param {Uint8Array} data
 */
function blocksOf(data) {
  /** @type {Uint8Array[]} */
  const parts = [];
  for (let at = 0; at < data.length; at += 255) {
    const block = data.subarray(at, at + 255);
    parts.push(Uint8Array.of(block.length), block);
  }
  return joined([...parts, Uint8Array.of(0)]);
}
